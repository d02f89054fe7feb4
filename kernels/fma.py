"""fma: chains of fused multiply-adds in registers, which keep the arithmetic units busy and nothing else.

Each chain turns a point: x += h * y, then y -= h * x, over and over (the symplectic Euler rule for a harmonic
oscillator). The map is linear with determinant 1, so for 0 < h < 2 the point goes round an ellipse
for ever: nothing overflows or fades into denormals, every step changes all bits of the fraction, as real
data do, and where the point is after n steps is known from the angle alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ncclbench.kernels.kind import Defaults, KernelKind, Problem, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Independent chains of one thread. An FMA takes 4 cycles on sm_90 and later, so 4 chains per warp
# scheduler would do for a block of 128 threads; 16 also make the kernel need more than 32 registers.
CHAINS = 16
FMAS_PER_STEP = 2 * CHAINS
# 2 sin(pi / 10.618): in each step a point turns by a part of the circle that no fraction comes near. Where it
# comes back to itself after few steps, rounding errs in the same way each time round, and errors add up.
H = 0.58315061


def problem(shape: Shape, elements: int, seed: int) -> Problem:
    """Starting points, arrays of [x or y, chain, thread] in float32; the results have the same form."""
    import numpy as np

    random = np.random.default_rng(seed)
    points = (CHAINS, shape.all_threads)
    radius, angle = random.uniform(0.5, 1.0, points), random.uniform(0.0, 2 * math.pi, points)
    start = np.stack([radius * np.cos(angle), radius * np.sin(angle)]).astype(np.float32)
    numbers = (np.float32(H),)

    def is_right(end: NDArray[Any], length: int, launches: int) -> bool:
        error = np.abs(turned(start, length) - end)
        return bool((error <= tolerance(length)).all())

    return Problem((start,), np.zeros_like(start), lambda steps_done: numbers, is_right)


def turned(start: NDArray[Any], length: int) -> NDArray[Any]:
    """Where the points are after so many steps, in float64: the matrix of one step to the power ``length``.

    A 2x2 matrix M with determinant 1 and trace 2 cos t has M^n = (sin(n t) M - sin((n-1) t) I) / sin t
    (Cayley-Hamilton); here M = [[1, h], [-h, 1 - h^2]].
    """
    import numpy as np

    h = float(np.float32(H))
    t = math.acos(1 - h * h / 2)
    a, b = math.sin(length * t) / math.sin(t), math.sin((length - 1) * t) / math.sin(t)
    x, y = start.astype(np.float64)
    return np.stack([a * (x + h * y) - b * x, a * ((1 - h * h) * y - h * x) - b * y])


def tolerance(length: int) -> float:
    """How far float32 may end from ``turned``.

    Rounding errors add up like a random walk, and over very many steps, when orbits repeat, evenly. The
    largest error seen in 1,000 chains was 2 * 2**-24 * sqrt(length) up to 10**6 steps, and 4e-11 * length
    at 10**9. One step more or less moves a point by 0.3 and more.
    """
    return 8 * 2**-24 * math.sqrt(length + 16) + 2**-33 * length


def flops(shape: Shape) -> int:
    """Two per fused multiply-add of one launch."""
    return 2 * FMAS_PER_STEP * shape.all_threads * shape.length


def nbytes(shape: Shape) -> int:
    """Each point is read once and written once."""
    return 2 * 2 * CHAINS * shape.all_threads * 4


def on_cpu(start: Any, end: Any, h: Any, blocks: int, threads: int, length: int) -> None:
    """Eight chains at a time: as many as two FMA units with a latency of four cycles can take."""
    count = CHAINS * blocks * threads
    start_x, start_y = start[0].reshape(count), start[1].reshape(count)
    end_x, end_y = end[0].reshape(count), end[1].reshape(count)
    for i in range(0, count, 8):
        x0, x1, x2, x3 = start_x[i], start_x[i + 1], start_x[i + 2], start_x[i + 3]
        x4, x5, x6, x7 = start_x[i + 4], start_x[i + 5], start_x[i + 6], start_x[i + 7]
        y0, y1, y2, y3 = start_y[i], start_y[i + 1], start_y[i + 2], start_y[i + 3]
        y4, y5, y6, y7 = start_y[i + 4], start_y[i + 5], start_y[i + 6], start_y[i + 7]
        for _ in range(length):
            x0, x1, x2, x3 = x0 + h * y0, x1 + h * y1, x2 + h * y2, x3 + h * y3
            x4, x5, x6, x7 = x4 + h * y4, x5 + h * y5, x6 + h * y6, x7 + h * y7
            y0, y1, y2, y3 = y0 - h * x0, y1 - h * x1, y2 - h * x2, y3 - h * x3
            y4, y5, y6, y7 = y4 - h * x4, y5 - h * x5, y6 - h * x6, y7 - h * x7
        end_x[i], end_x[i + 1], end_x[i + 2], end_x[i + 3] = x0, x1, x2, x3
        end_x[i + 4], end_x[i + 5], end_x[i + 6], end_x[i + 7] = x4, x5, x6, x7
        end_y[i], end_y[i + 1], end_y[i + 2], end_y[i + 3] = y0, y1, y2, y3
        end_y[i + 4], end_y[i + 5], end_y[i + 6], end_y[i + 7] = y4, y5, y6, y7


def on_cuda(threads: int) -> Callable[..., None]:
    """The kernel for a GPU with so many threads in a block."""
    from ncclbench.kernels.cuda_source import fma

    return fma(CHAINS)


FMA = KernelKind(
    name="fma",
    description="chains of fused multiply-adds in registers: no memory, arithmetic units full",
    bound="compute",
    defaults={"cpu": Defaults(1, 10_000), "cuda": Defaults(1024, 500)},
    flops=flops,
    nbytes=nbytes,
    problem=problem,
    on_cpu=on_cpu,
    on_cuda=on_cuda,
)
