"""The CUDA code of the kernels, as plain functions: compiled for a GPU, to PTX without one, or simulated.

The only module that imports numba.cuda. In it ``cuda`` must be a global name, which the simulator
replaces while it runs a function. Indices are unsigned, since numba lets negative ones count from the
end, which costs instructions. Small local arrays end in registers, as their loops are unrolled.
"""

# mypy: ignore-errors
# The types here are numba's, which mypy knows nothing of.
from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda, float32, uint32, uint64

# Elements whose loads are in flight at a time: with 1024 threads 128 KiB per multiprocessor. Little's law
# asks for 22 KB on an H200: 4.8 TB/s times about 600 ns, over 132 multiprocessors.
UNROLL = 8


def fma(chains: int) -> Callable[..., None]:
    """The chains of ncclbench.kernels.fma, so many in each thread."""

    def fma(start, end, h, length) -> None:
        thread = cuda.grid(1)
        x = cuda.local.array(chains, float32)
        y = cuda.local.array(chains, float32)
        for c in range(chains):
            x[c] = start[0, c, thread]
            y[c] = start[1, c, thread]
        for _ in range(length):
            for c in range(chains):
                x[c] = cuda.fma(h, y[c], x[c])
                y[c] = cuda.fma(-h, x[c], y[c])
        for c in range(chains):
            end[0, c, thread] = x[c]
            end[1, c, thread] = y[c]

    return fma


def triad(b, c, a, scalar, first, length) -> None:
    """In each step the grid takes as many neighbours as it has threads; loads go out UNROLL at a time."""
    stride = uint32(cuda.gridsize(1))
    size = uint32(a.size)
    i = uint32(first + uint32(cuda.grid(1)))
    if i >= size:
        i = uint32(i - size)
    at = cuda.local.array(UNROLL, uint32)
    b_at = cuda.local.array(UNROLL, b.dtype)
    c_at = cuda.local.array(UNROLL, c.dtype)
    for _ in range(length // UNROLL):
        for k in range(UNROLL):
            at[k] = i
            i = uint32(i + stride)
            if i >= size:
                i = uint32(i - size)
        for k in range(UNROLL):
            b_at[k] = b[at[k]]
            c_at[k] = c[at[k]]
        for k in range(UNROLL):
            a[at[k]] = cuda.fma(scalar, c_at[k], b_at[k])
    for _ in range(length % UNROLL):
        a[i] = cuda.fma(scalar, c[i], b[i])
        i = uint32(i + stride)
        if i >= size:
            i = uint32(i - size)


def gemm(
    threads: int, per_thread: int, depth_per_step: int, steps: int, row_tiles: int
) -> Callable[..., None]:
    """The tiled product of ncclbench.kernels.gemm, by its constants: the compiler must know them.

    Args:
        threads: of a block, side by side in a square.
        per_thread: rows and columns of C's elements that a thread holds.
        depth_per_step, steps: how deep a step goes, and how many finish a tile.
        row_tiles: tiles of a panel.
    """
    side = math.isqrt(threads)
    tile = per_thread * side
    rows, full_depth = row_tiles * tile, steps * depth_per_step
    loads = depth_per_step * tile // threads

    def gemm(a_t, b, c, length) -> None:
        a_piece = cuda.shared.array((depth_per_step, tile), float32)
        b_piece = cuda.shared.array((depth_per_step, tile), float32)
        sums = cuda.local.array((per_thread, per_thread), float32)
        a_column = cuda.local.array(per_thread, float32)
        b_row = cuda.local.array(per_thread, float32)
        thread = uint32(cuda.threadIdx.x)
        i = uint64(thread // uint32(side))
        j = uint64(thread % uint32(side))
        column = uint32(cuda.blockIdx.x * tile)
        row = uint32(0)
        depth = uint32(0)
        for m in range(per_thread):
            for n in range(per_thread):
                sums[m, n] = float32(0)
        for step in range(length):
            for load in range(loads):
                e = uint32(load * threads + thread)
                k = uint32(e // uint32(tile))
                n = uint32(e % uint32(tile))
                a_piece[k, n] = a_t[uint32(depth + k), uint32(row + n)]
                b_piece[k, n] = b[uint32(depth + k), uint32(column + n)]
            cuda.syncthreads()
            for k in range(depth_per_step):
                for m in range(per_thread):
                    a_column[m] = a_piece[uint64(k), uint64(m * side) + i]
                    b_row[m] = b_piece[uint64(k), uint64(m * side) + j]
                for m in range(per_thread):
                    for n in range(per_thread):
                        sums[m, n] = cuda.fma(a_column[m], b_row[n], sums[m, n])
            cuda.syncthreads()
            depth = uint32(depth + depth_per_step)
            if depth == full_depth or step == length - 1:
                for m in range(per_thread):
                    for n in range(per_thread):
                        c[row + uint64(m * side) + i, column + uint64(n * side) + j] = sums[m, n]
                        sums[m, n] = float32(0)
                depth = uint32(0)
                row = uint32(row + tile)
                if row == rows:
                    row = uint32(0)

    return gemm
