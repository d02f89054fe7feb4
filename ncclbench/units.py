"""Reading and writing sizes, percentages and durations, one way for the whole project.

Sizes follow nccl-tests: K, M, G, T are powers of 1024. Bandwidths are decimal: GB/s is 1e9 bytes/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ncclbench.errors import RequestError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|min|h)?", re.IGNORECASE | re.ASCII)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

# More than any machine holds: such a size is a typing error, not a request.
MAX_BYTES = 1 << 46


def parse_bytes(text: str, what: str = "size") -> int:
    """Bytes from ``8``, ``64K``, ``1M``, ``1.5G``, ``8MiB``.

    Raises:
        RequestError: not a size, not whole bytes, zero, or beyond 64 TiB.
    """
    stripped = text.strip()
    match = _SIZE.fullmatch(stripped)
    if match is None:
        raise RequestError(f"{what} {text!r} is not a size: write bytes like 8, 64K, 1M or 1G")
    value = float(match[1]) * _FACTORS[match[2].upper()]
    if not value < MAX_BYTES:
        raise RequestError(f"{what} {text!r} is more than 64T: no machine holds that")
    if value != int(value):
        raise RequestError(f"{what} {text!r} is not a whole number of bytes")
    if value == 0:
        raise RequestError(f"{what} {text!r} is zero: the smallest size is one element, write at least 1")
    return int(value)


def format_bytes(nbytes: int) -> str:
    """Shortest exact form with nccl-tests' suffixes: 8, 64K, 1M; bytes where none is exact."""
    for suffix in ("T", "G", "M", "K"):
        factor = _FACTORS[suffix]
        if nbytes >= factor and nbytes % factor == 0:
            return f"{nbytes // factor}{suffix}"
    return str(nbytes)


def format_memory(nbytes: float) -> str:
    """So many bytes in the unit that suits them, three digits: 3.2 MiB; also of what has become less."""
    sign, size = ("-", -nbytes) if nbytes < 0 else ("", nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{sign}{format_digits(size, 3)} {unit}"


def parse_percent(text: str, what: str) -> float:
    """A fraction from ``5%`` (0.05).

    Raises:
        RequestError: no percent sign, not a number, not above zero, or above 1000 %.
    """
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"{what} {text!r} is not a percentage: write it like 5%")
    percent = float(match[1])
    if not 0 < percent <= 1000:
        raise RequestError(f"{what} {text!r} is out of range: take above 0% to 1000%")
    return percent / 100.0


def format_percent(fraction: float, signed: bool = False) -> str:
    """A fraction in percent with two digits or whole: 0.4 %, 3.1 %, 57 %."""
    percent = 100 * fraction
    decimals = 0 if abs(percent) >= 9.95 else 1
    return f"{percent:{'+' if signed else ''}.{decimals}f} %"


def parse_seconds(text: str, what: str) -> float:
    """Seconds from ``60``, ``60s``, ``500ms``, ``15m``, ``1h``.

    Raises:
        RequestError: not a duration, or zero.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"{what} {text!r} is not a duration: write it like 60s, 500ms or 15m")
    seconds = float(match[1]) * _SECONDS[(match[2] or "s").lower()]
    if not 0 < seconds < 1e9:
        raise RequestError(f"{what} {text!r} must be above zero and below 30 years")
    return seconds


def format_seconds(seconds: float) -> str:
    """A duration for people: 850 ms, 12.4 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_time(time_us: float) -> str:
    """A measured time in the unit that suits it, three digits: 850 ns, 12.3 us, 1.77 ms, 2.1 s."""
    for limit_us, factor, unit in ((0.9995, 1e3, "ns"), (999.5, 1.0, "us"), (999_500, 1e-3, "ms")):
        if time_us < limit_us:
            return f"{format_digits(time_us * factor, 3)} {unit}"
    return f"{format_digits(time_us * 1e-6, 3)} s"


def format_digits(value: float, digits: int) -> str:
    """That many significant digits, no exponent, no zeros that say nothing: 450, 0.0123, 28650."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def digits_apart(first: float, second: float, fewest: int = 4, most: int = 9) -> int:
    """Significant digits that tell two numbers apart; ``fewest`` where they are equal."""
    if first == second:
        return fewest
    telling = (n for n in range(fewest, most) if format_digits(first, n) != format_digits(second, n))
    return next(telling, most)


def format_us(time_us: float) -> str:
    """Microseconds in at most seven characters, as nccl-tests prints its time column."""
    if time_us < 1000:
        return f"{time_us:.2f}"
    if time_us < 100_000:
        return f"{time_us:.1f}"
    return f"{time_us:.0f}"


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, plural where it has to be: 1 row, 1,200 rows."""
    return f"{number:,} {noun_text(number, noun, plural)}"


def noun_text(number: float, noun: str, plural: str | None = None) -> str:
    """The noun alone: row, rows."""
    return noun if number == 1 else plural or f"{noun}s"


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours, in order: of 0, 1, 2 and 8 (0, 2) and (8, 8)."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def rank_ranges(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-7`` or ``ranks 0, 2-4``."""
    ranges = runs_of(ranks)
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in ranges]
    number = sum(high - low + 1 for low, high in ranges)
    return f"{noun_text(number, 'rank')} {', '.join(texts)}"
