"""Kernels on a CPU: compiled by numba, run in the thread that launches them, the GIL left free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from ncclbench.kernels.kind import KernelKind, Problem, Shape
from numpy.typing import NDArray

_compiled: dict[str, Callable[..., None]] = {}


def compiled(kind: KernelKind) -> Callable[..., None]:
    """The kind's function, once per process: other arrays of the same types need no compiling again."""
    if kind.name not in _compiled:
        # "contract" lets a * b + c become one FMA; all other arithmetic stays as written. A cache on
        # disk would be shared by ranks on unlike hosts.
        jit = numba.njit(nogil=True, cache=False, fastmath={"contract"})
        _compiled[kind.name] = jit(kind.on_cpu)
    return _compiled[kind.name]


class CpuEngine:
    """The arrays of a problem in host memory."""

    def __init__(self, kind: KernelKind, problem: Problem) -> None:
        self._function = compiled(kind)
        self._arrays = (*problem.inputs, problem.output)

    def compile(self, shape: Shape, numbers: tuple[Any, ...]) -> None:
        """Compile with numba and run once, so that no launch pays for it."""
        self.launch(shape, numbers)

    def launch(self, shape: Shape, numbers: tuple[Any, ...]) -> None:
        """Compute; returns when it is done."""
        self._function(*self._arrays, *numbers, shape.blocks, shape.threads, shape.length)

    def output(self) -> NDArray[Any]:
        """The array that launches have written."""
        return self._arrays[-1]

    def clear(self) -> None:
        """Make the output zeros again."""
        self._arrays[-1].fill(0)
