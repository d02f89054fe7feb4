"""gemm: a tiled matrix product in float32 through shared memory, what most of a training step is.

Each block has a panel of C's columns, one tile wide and ROW_TILES tiles high. A step multiplies a piece of a
tile row of A with a piece of the same depth of a panel of B and adds the product to a tile of C. After
STEPS_PER_TILE steps the tile is finished and the next one begins, from the top again after the last. So
work is counted in steps, and a launch may end within a tile, which then holds the sum so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ncclbench.kernels.kind import Defaults, KernelKind, Problem, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A thread holds 4 x 4 elements of C; a block's threads are a square, so its tile is one, four times as wide.
PER_THREAD = 4
DEPTH_PER_STEP = 8
STEPS_PER_TILE = 64
ROW_TILES = 8
DEPTH = DEPTH_PER_STEP * STEPS_PER_TILE
# Elements are whole numbers of up to this size: a sum of DEPTH products stays below 2**24, exact in float32.
_LARGEST = 127


def tile_width(threads: int) -> int:
    """Rows and columns of a tile."""
    return PER_THREAD * math.isqrt(threads)


def problem(shape: Shape, elements: int, seed: int) -> Problem:
    """A transposed, [DEPTH, ROW_TILES * tile], B [DEPTH, blocks * tile] and C, in float32."""
    import numpy as np

    tile = tile_width(shape.threads)
    random = np.random.default_rng(seed)
    rows, columns = ROW_TILES * tile, shape.blocks * tile
    a_t = random.integers(-_LARGEST, _LARGEST, (DEPTH, rows), endpoint=True).astype(np.float32)
    b = random.integers(-_LARGEST, _LARGEST, (DEPTH, columns), endpoint=True).astype(np.float32)

    def is_right(c: NDArray[Any], length: int, launches: int) -> bool:
        return bool((c == product(a_t, b, length)).all())

    return Problem((a_t, b), np.zeros((rows, columns), np.float32), lambda steps_done: (), is_right)


def product(a_t: NDArray[Any], b: NDArray[Any], length: int) -> NDArray[Any]:
    """What C holds after so many steps of every block, if it held zeros before."""
    import numpy as np

    finished, steps = divmod(length, STEPS_PER_TILE)
    tile = a_t.shape[1] // ROW_TILES
    done, depth = min(finished, ROW_TILES) * tile, steps * DEPTH_PER_STEP
    c = np.zeros((a_t.shape[1], b.shape[1]), np.float32)
    # Exact in any order of summation.
    c[:done] = a_t[:, :done].T @ b
    if steps:
        last = slice(finished % ROW_TILES * tile, (finished % ROW_TILES + 1) * tile)
        c[last] = a_t[:depth, last].T @ b[:depth]
    return c


def flops(shape: Shape) -> int:
    """Two per multiplication and addition of the tiles of one launch."""
    return 2 * tile_width(shape.threads) ** 2 * DEPTH_PER_STEP * shape.blocks * shape.length


def nbytes(shape: Shape) -> int:
    """Pieces of A and B in every step, and a tile of C whenever one ends."""
    tile = tile_width(shape.threads)
    tiles = -(-shape.length // STEPS_PER_TILE)
    return 4 * shape.blocks * (shape.length * 2 * tile * DEPTH_PER_STEP + tiles * tile * tile)


def on_cpu(a_t: Any, b: Any, c: Any, blocks: int, threads: int, length: int) -> None:
    """Four steps in depth at a time, so that an element of C is loaded and stored once for four FMAs."""
    tile = a_t.shape[1] // ROW_TILES
    for block in range(blocks):
        columns = slice(block * tile, (block + 1) * tile)
        row, depth = 0, 0
        for _ in range(length):
            for i in range(row, row + tile):
                sums = c[i, columns]
                if depth == 0:
                    sums[:] = 0
                for k in range(depth, depth + DEPTH_PER_STEP, 4):
                    a0, a1, a2, a3 = a_t[k, i], a_t[k + 1, i], a_t[k + 2, i], a_t[k + 3, i]
                    b0, b1, b2, b3 = b[k, columns], b[k + 1, columns], b[k + 2, columns], b[k + 3, columns]
                    for j in range(tile):
                        sums[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]
            depth += DEPTH_PER_STEP
            if depth == DEPTH:
                row, depth = (row + tile) % (ROW_TILES * tile), 0


def on_cuda(threads: int) -> Callable[..., None]:
    """The kernel for a GPU with so many threads in a block."""
    from ncclbench.kernels.cuda_source import gemm

    return gemm(threads, PER_THREAD, DEPTH_PER_STEP, STEPS_PER_TILE, ROW_TILES)


GEMM = KernelKind(
    name="gemm",
    description="a tiled matrix product in float32 through shared memory (no tensor cores)",
    bound="compute",
    defaults={"cpu": Defaults(64, 50), "cuda": Defaults(1024, 200)},
    flops=flops,
    nbytes=nbytes,
    problem=problem,
    on_cpu=on_cpu,
    on_cuda=on_cuda,
    thread_counts=(16, 64, 256, 1024),
)
