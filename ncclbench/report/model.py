"""What panels draw from: the runs of one report with their rows, put into families and series."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ncclbench.hardware.judging import Judged
from ncclbench.hardware.machine import Machine, machine_of
from ncclbench.plan.model import Case
from ncclbench.store.model import Run, Unit
from ncclbench.tables.modes import LATENCY_MODES
from ncclbench.units import count_text

if TYPE_CHECKING:
    from ncclbench.report.decided import Decided
    from ncclbench.report.flight.model import Flight
    from ncclbench.report.searched import Searched
    from ncclbench.report.versus.model import Versus

Row = dict[str, Any]

# What makes two rows of one operation different curves, but for the arm and the mode.
AXES = ("dtype", "redop", "root", "topology", "async", "in_place", "nranks")

# So that a page opens at once and can be sent: of more rows the table shows the first, and figures draw every
# second, third ... of each curve. summary.csv and --json have all.
MOST_TABLED = 2_000
MOST_DRAWN = 5_000

_COLOURS = 6
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_DASHES = ("solid", "dash", "dot")


@dataclass(frozen=True, slots=True)
class Family:
    """Rows that make one curve per arm: one operation, one dtype, one of everything but size and mode.

    Attributes:
        key: its name in the page's data.
        op: the operation.
        label: what tells it from the operation's other families: "float32 sum".
    """

    key: str
    op: str
    label: str

    @property
    def title(self) -> str:
        """The family in words."""
        return f"{self.op} {self.label}"


@dataclass(frozen=True, slots=True)
class Series:
    """How one arm of one run looks in every figure.

    Attributes:
        label: its name in legends: the arm, with the run where there are several.
        colour: a CSS variable, so that it suits the light and the dark page.
        symbol: marker, so that colour is not the only difference.
        dash: line style.
    """

    label: str
    colour: str
    symbol: str
    dash: str


@dataclass(slots=True)
class Source:
    """One run in the report.

    Attributes:
        label: unique in the report.
        run: as read.
        rows: the sweep rows of the run, each with ``run`` set to the label.
        comparisons: the compare rows of its arms, likewise; empty with one arm.
        search: what it found where it looked for slow parts, and then it has no rows; None else.
        flight: what the flight recorders of its ranks say, where it left dumps; None else.
    """

    label: str
    run: Run
    rows: list[Row]
    comparisons: list[Row]
    search: Searched | None = None
    flight: Flight | None = None


@dataclass(slots=True)
class Report:
    """Everything a panel may show.

    Attributes:
        sources: the runs, in the order given.
        requirements: what was required of them and what came of it; empty where nothing was asked.
        versus: comparisons of these runs; empty where none was asked for.
        decided: a preset, which has no sources of its own here: its steps have pages; None of other reports.
        machines: by run label, what each was measured on.
        families: in the order of the plans.
        series: by (run label, arm).
        stride: of how many neighbours in a curve one is drawn.
    """

    sources: list[Source]
    requirements: Sequence[Judged] = ()
    versus: Sequence[Versus] = ()
    decided: Decided | None = None
    machines: dict[str, Machine] = field(init=False)
    families: dict[str, Family] = field(init=False)
    series: dict[tuple[str, str], Series] = field(init=False)
    stride: int = field(init=False)
    _by_family: dict[str, list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self.machines = {source.label: machine_of(source.run) for source in self.sources}
        self.families = families_of(self.rows)
        self.series = {}
        self.stride = math.ceil(sum(1 for _ in good_rows(self.rows)) / MOST_DRAWN) or 1
        self._by_family = {}
        several_runs = len(self.sources) > 1
        for row in self.rows:
            self._by_family.setdefault(family_key(row), []).append(row)
            run, arm = row["run"], row["arm"]
            if (run, arm) not in self.series:
                label = f"{run} · {arm}" if several_runs else arm
                self.series[run, arm] = numbered_series(len(self.series), label)

    @property
    def title(self) -> str:
        """What its page is called."""
        labels = [source.label for source in self.sources]
        return " and ".join([self.decided.label] if self.decided is not None else labels)

    @property
    def rows(self) -> list[Row]:
        """The rows of all runs."""
        return [row for source in self.sources for row in source.rows]

    @property
    def sweeps(self) -> list[Source]:
        """The runs that measured cases."""
        return [source for source in self.sources if source.run.has_cases]

    @property
    def searches(self) -> list[tuple[Source, Searched]]:
        """The runs that looked for slow parts, with what they found."""
        return [(source, source.search) for source in self.sources if source.search is not None]

    @property
    def flights(self) -> tuple[Flight, ...]:
        """What the flight recorders of the runs that left dumps say."""
        return tuple(source.flight for source in self.sources if source.flight is not None)

    @property
    def comparisons(self) -> list[Row]:
        """The compare rows of all runs."""
        return [row for source in self.sources for row in source.comparisons]

    def measured(self, family: str) -> dict[str, dict[tuple[str, str], list[Row]]]:
        """A family's rows with good data: by mode, then by (run, arm), in order of size; some of very many.

        Modes come in the order in which they answer the question for latency.
        """
        rows = sorted(good_rows(self._by_family[family]), key=lambda row: int(row["nbytes"]))
        found: dict[str, dict[tuple[str, str], list[Row]]] = {}
        for mode in in_order({row["mode"] for row in rows}, LATENCY_MODES):
            found[mode] = {}
        for row in rows:
            found[row["mode"]].setdefault((row["run"], row["arm"]), []).append(row)
        if self.stride == 1:
            return found
        # The last one is the largest, where most is read off.
        return {
            mode: {arm: rows[::-1][:: self.stride][::-1] for arm, rows in curves.items()}
            for mode, curves in found.items()
        }


def tabled(rows: Sequence[Row]) -> list[Row]:
    """The rows that a page's table shows, in their order: of very many the first, and all that matter.

    Rows of a sweep matter where data are wrong, compare rows where they are slower or faster.
    """
    if len(rows) <= MOST_TABLED:
        return list(rows)
    matter = [place for place, row in enumerate(rows) if _matters(row)][:MOST_TABLED]
    others = itertools.islice(
        (place for place, row in enumerate(rows) if not _matters(row)), MOST_TABLED - len(matter)
    )
    return [rows[place] for place in sorted((*matter, *others))]


def _matters(row: Row) -> bool:
    return row.get("status") == "wrong" or row.get("verdict") in ("slower", "faster")


def thinned(rows: Sequence[Row]) -> list[Row]:
    """Compare rows for figures and tables of sizes, in their order: of very many every second, third ...

    of each curve, and all that are slower or faster, MOST_TABLED of them at most.
    """
    if len(rows) <= MOST_TABLED:
        return list(rows)
    stride = math.ceil(len(rows) / MOST_TABLED)
    curves: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        curve = (row.get("run"), row["base"], row["new"], family_key(row), row["mode"])
        curves.setdefault(curve, []).append(row)
    # The last one is the largest, where most is read off.
    kept = {
        id(row)
        for own in curves.values()
        for row in sorted(own, key=lambda row: -int(row["nbytes"]))[::stride]
    }
    kept.update(itertools.islice((id(row) for row in rows if _matters(row)), MOST_TABLED))
    return [row for row in rows if id(row) in kept]


def families_of(rows: Sequence[Row]) -> dict[str, Family]:
    """The families of rows by their keys, in the rows' order; sweep rows or compare rows."""
    varying: dict[str, set[str]] = {}
    families: dict[str, Family] = {}
    for row in rows:
        key, op = family_key(row), row["op"]
        if key not in families:
            if op not in varying:
                varying[op] = varying_axes(other for other in rows if other["op"] == op)
            families[key] = Family(key, op, _label(row, varying[op]))
    return families


def good_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with a speed that counts: measured, and the data not found wrong."""
    return (row for row in rows if row["status"] == "ok" and row["median_us"] is not None)


def varying_axes(rows: Iterable[Row]) -> set[str]:
    """The axes on which not all rows are alike, leaving out rows on which an axis means nothing."""
    values: dict[str, set[Any]] = {axis: set() for axis in AXES}
    for row in rows:
        for axis in AXES:
            if row[axis] is not None:
                values[axis].add(row[axis])
    return {axis for axis, seen in values.items() if len(seen) > 1}


def in_order(modes: Iterable[str], order: tuple[str, ...]) -> list[str]:
    """Modes as ``order`` has them, others behind by name."""
    return sorted(modes, key=lambda mode: (order.index(mode) if mode in order else len(order), mode))


def family_key(row: Row) -> str:
    """The key of a row's family; compare rows have the same axes."""
    return "/".join(str(row[axis]) for axis in ("op", *AXES))


def _label(row: Row, varying: set[str]) -> str:
    words = [row["dtype"]]
    if row["redop"] is not None:
        words.append(row["redop"])
    if "root" in varying and row["root"] is not None:
        words.append(f"root {row['root']}")
    if "topology" in varying:
        words.append(row["topology"])
    if "async" in varying:
        words.append("async" if row["async"] else "sync")
    if "in_place" in varying:
        words.append("in place" if row["in_place"] else "out of place")
    if "nranks" in varying:
        words.append(count_text(row["nranks"], "rank"))
    return " ".join(words)


def numbered_series(index: int, label: str) -> Series:
    """How the series with this number looks, the first being 0."""
    return Series(
        label=label,
        colour=f"var(--series-{index % _COLOURS + 1})",
        symbol=_SYMBOLS[index % len(_SYMBOLS)],
        dash=_DASHES[index // _COLOURS % len(_DASHES)],
    )


def host_name(host: dict[str, Any]) -> str:
    """The name in a host's description, "" where there is none."""
    return str(host.get("name") or "")


def row_units(source: Source, row: Row) -> list[Unit]:
    """The units a row was made of, in order of epoch; none for an imported row."""
    return source.run.units.get((Case.from_json(row).key, row["arm"]), [])
