"""A kernel that can be launched: its kind, its shape and its data, on a CPU or a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ncclbench.kernels.kind import KernelKind, Problem, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Kernel(Protocol):
    """What a launch does, and how to launch it.

    Attributes:
        kind: its name in KINDS.
        shape: of one launch.
    """

    @property
    def kind(self) -> str:
        """Its name in KINDS."""
        ...

    @property
    def shape(self) -> Shape:
        """Of one launch."""
        ...

    def compile(self) -> None:
        """All that takes time once; no launch is slow afterwards, and a CUDA graph can capture it.

        Raises:
            MeasurementError: it cannot be compiled or launched here.
        """

    def launch(self) -> None:
        """On a GPU: put it on torch's current stream and return. On a CPU: do the work in this thread.

        The GIL is free while a CPU works. Torch's current device must be the kernel's.
        """

    def check(self) -> bool:
        """Whether the output is what the launches leave behind; False before the first. Waits for them."""

    def flops(self) -> int:
        """Floating-point operations of one launch; an FMA is two."""

    def nbytes(self) -> int:
        """Bytes that one launch reads and writes, were nothing cached."""

    def with_length(self, length: int) -> Kernel:
        """The same with another length, on the same buffers: this one must not be launched any more.

        Raises:
            RequestError: the length is out of range.
        """


class Engine(Protocol):
    """Where the arrays are and who runs the code."""

    def compile(self, shape: Shape, numbers: tuple[Any, ...]) -> None:
        """Compile and load, and launch once."""

    def launch(self, shape: Shape, numbers: tuple[Any, ...]) -> None:
        """Launch it once, with the numbers that the problem passes and the shape's length."""

    def output(self) -> NDArray[Any]:
        """The output on the host, after all that was launched."""

    def clear(self) -> None:
        """Zeros in the output; returns when they are there."""


class LaunchedKernel:
    """The Kernel of all kinds and devices; an engine knows the device, a problem knows what is right."""

    def __init__(self, kind: KernelKind, shape: Shape, problem: Problem, engine: Engine) -> None:
        self.kind = kind.name
        self.shape = shape
        self._kind = kind
        self._problem = problem
        self._engine = engine
        self._launches = 0

    def compile(self) -> None:
        # Not the whole length: a launch is as good when it is short.
        self._engine.compile(replace(self.shape, length=1), self._problem.numbers(0))
        self._start_anew()

    def launch(self) -> None:
        self._engine.launch(self.shape, self._problem.numbers(self._launches * self.shape.length))
        self._launches += 1

    def check(self) -> bool:
        if self._launches == 0:
            return False
        return self._problem.is_right(self._engine.output(), self.shape.length, self._launches)

    def flops(self) -> int:
        return self._kind.flops(self.shape)

    def nbytes(self) -> int:
        return self._kind.nbytes(self.shape)

    def with_length(self, length: int) -> LaunchedKernel:
        shape = replace(self.shape, length=length)
        self._kind.check_shape(shape)
        kernel = LaunchedKernel(self._kind, shape, self._problem, self._engine)
        kernel._start_anew()
        return kernel

    def _start_anew(self) -> None:
        self._engine.clear()
        self._launches = 0


def with_length(kernel: Kernel, length: int) -> Kernel:
    """The same kernel with another length, on the same buffers; the old one must not be launched any more.

    Raises:
        RequestError: the length is out of range.
    """
    return kernel.with_length(length)
