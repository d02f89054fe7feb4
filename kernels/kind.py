"""What a kernel kind is: its work in figures, its data and right answer, and its code for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ncclbench.errors import RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Kernels count their steps in 32 bits.
MAX_LENGTH = 2**31 - 1
# What CUDA allows, and what the kernels are compiled for: 64 registers a thread at most.
MAX_THREADS = 1024
# The first dimension of a CUDA grid.
MAX_BLOCKS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """How much one launch does, and with how many threads.

    Attributes:
        blocks: CUDA blocks. With 1024 threads each has a multiprocessor for itself (docs/kernels.md), so
            this is the number of multiprocessors the kernel occupies.
        threads: threads per block.
        length: steps of every thread: work and, but for a fixed cost, time are proportional to it.
    """

    blocks: int
    threads: int
    length: int

    @property
    def all_threads(self) -> int:
        """Threads in all blocks together."""
        return self.blocks * self.threads


@dataclass(frozen=True, slots=True)
class Defaults:
    """The shape a kernel has on a device when nobody asks for another.

    Attributes:
        threads, length: as in Shape.
        elements: of each array, where the kind's data do not follow from the shape; else 0.
    """

    threads: int
    length: int
    elements: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """The data of a kernel on the host, and what must come out. A kernel's code is called with
    ``(*inputs, output, *numbers, length)``; the CPU's with blocks and threads before the length.

    Attributes:
        inputs: the arrays that are read.
        output: the array that is written: zeros.
        numbers: the numbers passed to the next launch, from the steps that launches before it did.
        is_right: whether an output is what so many launches of that length leave behind.
    """

    inputs: tuple[NDArray[Any], ...]
    output: NDArray[Any]
    numbers: Callable[[int], tuple[Any, ...]]
    is_right: Callable[[NDArray[Any], int, int], bool]


@dataclass(frozen=True, slots=True)
class KernelKind:
    """One kind of compute kernel.

    Attributes:
        name: on the command line and in rows.
        description: what it does, for lists.
        bound: what it keeps busy: "compute" the arithmetic units, "memory" the way to memory.
        defaults: per device, "cpu" and "cuda".
        flops: floating-point operations of one launch of a shape; an FMA is two.
        nbytes: bytes that one launch of a shape reads and writes, were nothing cached.
        problem: the data for (shape, elements, seed).
        on_cpu: its code for the CPU, which numba compiles.
        on_cuda: its code for a GPU, for blocks of so many threads. It is in a module of its own, which is
            imported then and not before: it loads numba.cuda.
        thread_counts: the threads per block it can have; empty: any.
    """

    name: str
    description: str
    bound: Literal["compute", "memory"]
    defaults: Mapping[str, Defaults]
    flops: Callable[[Shape], int]
    nbytes: Callable[[Shape], int]
    problem: Callable[[Shape, int, int], Problem]
    on_cpu: Callable[..., None]
    on_cuda: Callable[[int], Callable[..., None]]
    thread_counts: tuple[int, ...] = ()

    def check_shape(self, shape: Shape, elements: int = 0) -> None:
        """Refuse what cannot be launched.

        Args:
            shape: of one launch.
            elements: of each array; 0 where they follow from the shape.

        Raises:
            RequestError: blocks, threads, length or elements are out of range for this kind.
        """
        for what, value, most in (
            ("blocks", shape.blocks, MAX_BLOCKS),
            ("threads", shape.threads, MAX_THREADS),
            ("length", shape.length, MAX_LENGTH),
        ):
            if not 1 <= value <= most:
                raise RequestError(f"kernel {self.name}: {what} is {value:,}: give 1 to {most:,}")
        if self.thread_counts and shape.threads not in self.thread_counts:
            counts = ", ".join(map(str, self.thread_counts))
            raise RequestError(f"kernel {self.name}: threads is {shape.threads}: give one of {counts}")
        if elements and not shape.all_threads <= elements < 2**31:
            raise RequestError(
                f"kernel {self.name}: elements is {elements:,}: give at least one for each of the "
                f"{shape.all_threads:,} threads, and less than 2**31"
            )
