"""A kernel made as long as wanted, by all ranks alike.

Every decision comes from figures that all ranks agreed on, by arithmetic that IEEE 754 fixes to the
last bit. So all of them try the same lengths and stop after the same round.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ncclbench.kernels.kernel import Kernel, with_length
from ncclbench.kernels.kind import MAX_LENGTH

from ncclbench.errors import MeasurementError, RequestError

MAX_ROUNDS = 10
# Near enough: what clocks and neighbours do to a kernel from one moment to the next is no less.
CLOSE = 0.03
# How much longer than before a kernel may be tried: a time below the clock's resolution tells little.
MAX_GROWTH = 16


def calibrate(
    kernel: Kernel,
    target_us: float,
    measure: Callable[[Kernel], float],
    agree: Callable[[float], float],
) -> Kernel:
    """The kernel with the length at which one launch takes about ``target_us``, the same on every rank.

    All ranks call ``measure`` and ``agree`` equally often and in the same order whatever they measure, in
    at most MAX_ROUNDS rounds. Where one step takes longer than the target, or the longest launch less, the
    nearest length is what comes back: time it before use.

    Args:
        kernel: compiled; its length is tried first. Not to be launched afterwards.
        target_us: wanted duration of one launch, microseconds; the ranks' values are agreed on too.
        measure: microseconds of one launch of the kernel it is given, on this rank.
        agree: the same figure on every rank from each rank's own, infinite where one is: the maximum, say.

    Raises:
        RequestError: the target is no positive time.
        MeasurementError: a rank could not time the kernel. What ``measure`` raised is raised on that rank.
    """
    target_us = agree(target_us if target_us > 0 else math.inf)
    length = round(agree(float(kernel.shape.length)))
    if not math.isfinite(target_us):
        raise RequestError(f"kernel {kernel.kind}: the duration wanted must be finite and more than 0 us")
    times_us: dict[int, float] = {}
    for _ in range(MAX_ROUNDS):
        if length in times_us:
            break
        kernel = with_length(kernel, length)
        times_us[length] = _agreed_time(kernel, measure, agree)
        if abs(times_us[length] - target_us) <= CLOSE * target_us:
            break
        length = next_length(times_us, length, target_us)
    nearest = min(times_us, key=lambda tried: (abs(times_us[tried] - target_us), tried))
    return with_length(kernel, nearest)


def _agreed_time(
    kernel: Kernel, measure: Callable[[Kernel], float], agree: Callable[[float], float]
) -> float:
    """One launch's time on all ranks.

    A rank whose measurement failed takes part with infinity, so that no other waits for it.
    """
    try:
        time_us = measure(kernel)
    except Exception:
        agree(math.inf)
        raise
    agreed_us = agree(time_us if time_us >= 0 else math.inf)
    if not math.isfinite(agreed_us):
        raise MeasurementError(f"kernel {kernel.kind}: a rank could not time it; its own message says why")
    return agreed_us


def next_length(times_us: dict[int, float], length: int, target_us: float) -> int:
    """The length to try after ``length``, the last of those tried.

    On the line through the nearest one below the target and the nearest above, and strictly between
    them; without such two through the nearest two; through one alone in proportion. At most MAX_GROWTH
    times longer or shorter than the last.
    """
    below = max((tried for tried, time_us in times_us.items() if time_us < target_us), default=None)
    above = min((tried for tried, time_us in times_us.items() if time_us >= target_us), default=None)
    if below is not None and above is not None and below < above:
        wanted = _on_line(times_us, below, above, target_us)
        return min(max(round(wanted), below + 1), max(above - 1, below + 1))
    nearest = sorted(times_us, key=lambda tried: (abs(times_us[tried] - target_us), tried))[:2]
    one, other = nearest[0], nearest[-1]
    if (times_us[other] - times_us[one]) * (other - one) > 0:
        wanted = _on_line(times_us, one, other, target_us)
    else:
        wanted = length * target_us / times_us[length] if times_us[length] > 0 else math.inf
    return round(min(max(wanted, length / MAX_GROWTH, 1), length * MAX_GROWTH, MAX_LENGTH))


def _on_line(times_us: dict[int, float], one: int, other: int, target_us: float) -> float:
    """Where the line through the times of two lengths reaches the target."""
    us_per_step = (times_us[other] - times_us[one]) / (other - one)
    return one + (target_us - times_us[one]) / us_per_step
