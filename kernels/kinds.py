"""KINDS: the compute kernels by name; adding one is adding an entry here."""

from __future__ import annotations

from ncclbench.kernels.fma import FMA
from ncclbench.kernels.gemm import GEMM
from ncclbench.kernels.kind import KernelKind
from ncclbench.kernels.triad import TRIAD

KINDS: dict[str, KernelKind] = {kind.name: kind for kind in (FMA, TRIAD, GEMM)}
