"""The CUDA code of the kernels, as plain functions: compiled for a GPU, to PTX without one, or simulated.

The only module that imports numba.cuda. In it ``cuda`` must be a global name, which the simulator
replaces while it runs a function. Indices are unsigned, since numba lets negative ones count from the
end, which costs instructions. Small local arrays end in registers, as their loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, uint32, uint64

from ncclbench.kernels.fma import CHAINS
from ncclbench.kernels.gemm import DEPTH, DEPTH_PER_STEP, PER_THREAD, ROW_TILES, tile_width

# Loads in flight per thread: with 1024 threads 128 KiB per multiprocessor, where HBM3e needs about 25.
UNROLL = 8


def fma(start: Any, end: Any, h: Any, length: Any) -> None:
    """The chains of ncclbench.kernels.fma, CHAINS in each thread."""
    thread = cuda.grid(1)
    x = cuda.local.array(CHAINS, float32)
    y = cuda.local.array(CHAINS, float32)
    for c in range(CHAINS):
        x[c] = start[0, c, thread]
        y[c] = start[1, c, thread]
    for _ in range(length):
        for c in range(CHAINS):
            x[c] = cuda.fma(h, y[c], x[c])
            y[c] = cuda.fma(-h, x[c], y[c])
    for c in range(CHAINS):
        end[0, c, thread] = x[c]
        end[1, c, thread] = y[c]


def triad(b: Any, c: Any, a: Any, scalar: Any, first: Any, length: Any) -> None:
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


def gemm(threads: int) -> Callable[..., None]:
    """The tiled product for blocks of so many threads: shared memory has its size from the compiler."""
    tile = tile_width(threads)
    side = tile // PER_THREAD
    loads = DEPTH_PER_STEP * tile // threads

    def gemm(a_t: Any, b: Any, c: Any, length: Any) -> None:
        a_piece = cuda.shared.array((DEPTH_PER_STEP, tile), float32)
        b_piece = cuda.shared.array((DEPTH_PER_STEP, tile), float32)
        sums = cuda.local.array((PER_THREAD, PER_THREAD), float32)
        a_column = cuda.local.array(PER_THREAD, float32)
        b_row = cuda.local.array(PER_THREAD, float32)
        thread = uint32(cuda.threadIdx.x)
        i = uint64(thread // uint32(side))
        j = uint64(thread % uint32(side))
        column = uint32(cuda.blockIdx.x * tile)
        row = uint32(0)
        depth = uint32(0)
        for m in range(PER_THREAD):
            for n in range(PER_THREAD):
                sums[m, n] = float32(0)
        for step in range(length):
            for load in range(loads):
                e = uint32(load * threads + thread)
                k = uint32(e // uint32(tile))
                n = uint32(e % uint32(tile))
                a_piece[k, n] = a_t[uint32(depth + k), uint32(row + n)]
                b_piece[k, n] = b[uint32(depth + k), uint32(column + n)]
            cuda.syncthreads()
            for k in range(DEPTH_PER_STEP):
                for m in range(PER_THREAD):
                    a_column[m] = a_piece[uint64(k), uint64(m * side) + i]
                    b_row[m] = b_piece[uint64(k), uint64(m * side) + j]
                for m in range(PER_THREAD):
                    for n in range(PER_THREAD):
                        sums[m, n] = cuda.fma(a_column[m], b_row[n], sums[m, n])
            cuda.syncthreads()
            depth = uint32(depth + DEPTH_PER_STEP)
            if depth == DEPTH or step == length - 1:
                for m in range(PER_THREAD):
                    for n in range(PER_THREAD):
                        c[uint32(row + m * side + i), uint32(column + n * side + j)] = sums[m, n]
                        sums[m, n] = float32(0)
                depth = uint32(0)
                row = uint32(row + tile)
                if row == ROW_TILES * tile:
                    row = uint32(0)

    return gemm


# By kind: the function for blocks of so many threads.
SOURCES: dict[str, Callable[[int], Callable[..., None]]] = {
    "fma": lambda threads: fma,
    "triad": lambda threads: triad,
    "gemm": gemm,
}
