"""Which message sizes a sweep visits: a range by factor or by step, as in nccl-tests, or a list."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ncclbench.errors import RequestError
from ncclbench.units import format_bytes, parse_bytes

# A run of more sizes than this is a typing error (-f 1.0001), not a sweep anybody waits for.
MAX_SIZES = 2000


@dataclass(frozen=True, slots=True)
class UsualSizes:
    """A command's range where nothing is asked for: as typed after -b, -e and -f."""

    smallest: str = "8"
    largest: str = "64M"
    factor: str = "2"


SWEEP_SIZES = UsualSizes()

_FACTOR = re.compile(r"\d+(?:\.\d+)?|\.\d+", re.ASCII)


def parse_sizes(
    sizes: str | None = None,
    min_bytes: str | None = None,
    max_bytes: str | None = None,
    step_factor: str | None = None,
    step_bytes: str | None = None,
    usual: UsualSizes = SWEEP_SIZES,
) -> tuple[int, ...]:
    """The sizes asked for in bytes, ascending and distinct; arguments as typed, None where not given.

    Raises:
        RequestError: not a size, an empty or endless range, flags that contradict each other.
    """
    if sizes is not None:
        if any(value is not None for value in (min_bytes, max_bytes, step_factor, step_bytes)):
            raise RequestError("--sizes lists every size: leave out -b, -e, -f and -i")
        return _listed(sizes)
    low = parse_bytes(usual.smallest if min_bytes is None else min_bytes, "-b/--min-bytes")
    high = parse_bytes(usual.largest if max_bytes is None else max_bytes, "-e/--max-bytes")
    if low > high:
        asked = "" if max_bytes is not None else " (the default)"
        raise RequestError(
            f"-b/--min-bytes {format_bytes(low)} is above -e/--max-bytes {format_bytes(high)}{asked}: "
            f"raise -e or lower -b"
        )
    if step_bytes is not None:
        if step_factor is not None:
            raise RequestError("-f/--step-factor and -i/--step-bytes contradict each other: give one")
        return _by_step(low, high, parse_bytes(step_bytes, "-i/--step-bytes"))
    return _by_factor(low, high, usual.factor if step_factor is None else step_factor)


def _listed(text: str) -> tuple[int, ...]:
    entries = [entry.strip() for entry in text.split(",")]
    if "" in entries:
        raise RequestError(f"--sizes {text!r} has an empty entry: write it like 8,64K,1M")
    found: set[int] = set()
    for entry in entries:
        nbytes = parse_bytes(entry, "--sizes entry")
        if nbytes in found:
            raise RequestError(f"--sizes {text!r} has {entry} twice: name each size once")
        found.add(nbytes)
    if len(found) > MAX_SIZES:
        raise RequestError(f"--sizes has {len(found)} entries: at most {MAX_SIZES:,} are measured in one run")
    return tuple(sorted(found))


def _by_step(low: int, high: int, step: int) -> tuple[int, ...]:
    nsizes = (high - low) // step + 1
    if nsizes > MAX_SIZES:
        raise RequestError(
            f"-i/--step-bytes {format_bytes(step)} makes {nsizes:,} sizes, more than {MAX_SIZES:,}: "
            "take a larger step"
        )
    return tuple(range(low, high + 1, step))


def _by_factor(low: int, high: int, text: str) -> tuple[int, ...]:
    name = "-f/--step-factor"
    text = text.strip()
    if not _FACTOR.fullmatch(text):
        raise RequestError(f"{name} {text!r} is not a number: write it like 2 or 1.5")
    factor = float(text)
    if factor <= 1:
        raise RequestError(f"{name} {text} never reaches a larger size: take one above 1")
    sizes = [low]
    while (following := sizes[-1] * factor) <= high:
        # Whole bytes after every step, as nccl-tests has it.
        if int(following) == sizes[-1]:
            raise RequestError(f"{name} {text} does not grow a size of {sizes[-1]} bytes: raise it or -b")
        sizes.append(int(following))
        if len(sizes) > MAX_SIZES:
            raise RequestError(f"{name} {text} makes more than {MAX_SIZES:,} sizes: take a larger factor")
    return tuple(sizes)
