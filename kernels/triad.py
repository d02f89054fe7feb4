"""triad: a[i] = b[i] + scalar * c[i] over arrays in turn, which keeps the way to memory busy.

It is the triad of STREAM (J. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance
Computers", 1995), in float64 as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ncclbench.kernels.kind import Defaults, KernelKind, Problem, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Two loads and a store; what a cache reads because of the store is not counted, as in STREAM.
BYTES_PER_ELEMENT = 3 * 8
SCALAR = 3.0
# Fractions of so many bits: then b + 3 c needs 53 and is exact, with an FMA and without.
_BITS = 50


def problem(shape: Shape, elements: int, seed: int) -> Problem:
    """Three arrays of float64; each launch goes on where the one before it ended, and round again.

    So even short launches find little in the caches, as long as the arrays are larger than these.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    b, c = random.integers(2 ** (_BITS - 1), 2**_BITS, (2, elements)) / 2.0**_BITS
    scalar = np.float64(SCALAR)

    def numbers(steps_done: int) -> tuple[Any, ...]:
        return scalar, np.uint32(steps_done * shape.all_threads % elements)

    def is_right(a: NDArray[Any], length: int, launches: int) -> bool:
        done = min(elements, launches * length * shape.all_threads)
        return bool((a[:done] == b[:done] + scalar * c[:done]).all() and not a[done:].any())

    return Problem((b, c), np.zeros_like(b), numbers, is_right)


def flops(shape: Shape) -> int:
    """Two per element and step: a multiplication and an addition."""
    return 2 * shape.all_threads * shape.length


def nbytes(shape: Shape) -> int:
    """Two arrays read and one written, in bytes, were nothing cached."""
    return BYTES_PER_ELEMENT * shape.all_threads * shape.length


def on_cpu(b: Any, c: Any, a: Any, scalar: Any, first: int, blocks: int, threads: int, length: int) -> None:
    """STREAM's triad from element ``first`` on, round and round, as numba compiles it."""
    left, begin = blocks * threads * length, int(first)
    while left > 0:
        count = min(left, a.size - begin)
        to, left_term, right_term = a[begin:], b[begin:], c[begin:]
        for i in range(count):
            to[i] = left_term[i] + scalar * right_term[i]
        left, begin = left - count, 0


def on_cuda(threads: int) -> Callable[..., None]:
    """The kernel for a GPU; the number of threads makes no difference to its code."""
    from ncclbench.kernels.cuda_source import triad

    return triad


TRIAD = KernelKind(
    name="triad",
    description="a = b + 3 c over long arrays, as in STREAM: the way to memory full",
    bound="memory",
    # All three arrays: 96 MiB on a CPU, more than most caches, and 192 MiB on a GPU, more than any L2
    # (50 MB on an H100, 126 MB on a B200).
    defaults={"cpu": Defaults(1, 2**18, elements=2**22), "cuda": Defaults(1024, 100, elements=2**23)},
    flops=flops,
    nbytes=nbytes,
    problem=problem,
    on_cpu=on_cpu,
    on_cuda=on_cuda,
)
