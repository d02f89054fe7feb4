"""Numbers and counts in words, as the page prints them: three digits and the unit."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from ncclbench.units import runs_of

# Characters that are not seen: they turn around the text beside them (Unicode, UAX #9), or control terminals.
_TURNING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible_text(text: str) -> str:
    """A text in which what would turn its neighbours around is written out: a name cannot rewrite a line."""
    return _TURNING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: 0.0123, 1.23, 123, 12345."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def tick(text: str) -> str:
    """The same without digits that say nothing: 10.0 µs to 10 µs."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def time_text(time_us: float) -> str:
    """A time given in microseconds with the unit that suits it: 850 ns, 12.3 µs, 1.20 ms, 3.00 s."""
    for limit_us, factor, unit in ((1.0, 1e3, "ns"), (1e3, 1.0, "µs"), (1e6, 1e-3, "ms")):
        if time_us < limit_us:
            return f"{three_digits(time_us * factor)} {unit}"
    return f"{three_digits(time_us * 1e-6)} s"


def rate_text(rate_GBs: float) -> str:
    """A bandwidth given in GB/s (1e9 bytes) with the unit that suits it: 350 KB/s, 12.3 MB/s, 48.0 GB/s."""
    for limit_GBs, factor, unit in ((1e-3, 1e6, "KB/s"), (1.0, 1e3, "MB/s")):
        if rate_GBs < limit_GBs:
            return f"{three_digits(rate_GBs * factor)} {unit}"
    return f"{three_digits(rate_GBs)} GB/s"


def ratio_text(ratio: float) -> str:
    """A ratio of times: 1.08x."""
    return f"{ratio:.3f}x" if 0.95 < ratio < 1.05 else f"{ratio:.2f}x"


def moment_text(moment: str) -> str:
    """An ISO time for people: 2026-11-29 15:50 UTC; as it stands where it is no time."""
    try:
        return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return moment


def ranges_text(numbers: list[int]) -> str:
    """Whole numbers with neighbours drawn together: 0-7, 9."""
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs_of(numbers))


def list_text(words: list[str], most: int = 4) -> str:
    """Words as a sentence lists them, cut after ``most``: a, b and 3 more."""
    if len(words) > most:
        return f"{', '.join(words[: most - 1])} and {len(words) - most + 1} more"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
