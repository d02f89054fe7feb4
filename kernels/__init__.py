"""Compute kernels that run beside collectives, imported as ``ncclbench.kernels``.

Importing it loads neither numba nor torch: they come with the first kernel that is made.
"""

from __future__ import annotations

from ncclbench.kernels.calibration import calibrate
from ncclbench.kernels.kernel import Kernel, with_length
from ncclbench.kernels.kind import KernelKind, Shape
from ncclbench.kernels.kinds import KINDS
from ncclbench.kernels.making import make_kernel, why_unavailable

__all__ = [
    "KINDS",
    "Kernel",
    "KernelKind",
    "Shape",
    "calibrate",
    "make_kernel",
    "why_unavailable",
    "with_length",
]
