"""What a script of this folder says of a bar, in a line of its own: `make bench` collects these lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

_MARK = "bar: "


@dataclass(frozen=True, slots=True)
class Told:
    """One figure beside its bar.

    Attributes:
        bar: its name in ``BENCHES`` of bars.py.
        measured: the figure with its unit and, where it has one, its interval.
        met: None where the figure cannot tell, as when an interval holds the bar.
    """

    bar: str
    measured: str
    met: bool | None


def tell(bar: str, measured: str, met: bool | None) -> None:
    """Print one figure, so that whoever started the script finds it among what else it prints.

    Raises:
        ValueError: there is no figure, which is neither met nor missed.
    """
    if not measured:
        raise ValueError(f"nothing was measured of {bar}")
    print(_MARK + json.dumps(asdict(Told(bar, measured, met)), ensure_ascii=False), flush=True)


def heard(line: str) -> Told | None:
    """What a line of output tells, None where it is none of ``tell``'s."""
    return Told(**json.loads(line.removeprefix(_MARK))) if line.startswith(_MARK) else None


def inside(low: float, high: float, least: float, most: float) -> bool | None:
    """Whether an interval lies in the bar's: False outside of it, None where it is over its edge."""
    if least <= low and high <= most:
        return True
    return False if high < least or low > most else None


def heard_in(text: str) -> Iterator[Told]:
    """All that was told in ``text``."""
    for line in text.splitlines():
        told = heard(line)
        if told is not None:
            yield told
