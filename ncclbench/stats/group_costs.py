"""What the lines of a run of ``groups`` come to: costs, interference, and orders of calling, in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ncclbench.stats.lines import grouped, of_kind
from ncclbench.stats.over_epochs import middle, ratio
from ncclbench.store.groups import CrossedCell, GroupCosts, GroupTimes, Reading
from ncclbench.store.model import Result
from ncclbench.store.p2p import ArmFound, LeftOut
from ncclbench.tables.groups import ISSUE_ORDERS

Row = dict[str, Any]

# Of readings, what is compared; names of the rows.
_HELD = ("files", "sockets", "connections", "threads")
_STAYING = ("rss_bytes", "shared_bytes", "device_bytes")
_BYTES = (*_STAYING, "peak_bytes")


@dataclass(frozen=True, slots=True)
class GroupsFound:
    """What a run holds, as ``--json`` has it.

    Attributes:
        arms: what each arm is.
        rows: what groups cost, one per arm, way and number of groups.
        at_once: interference, one per arm, size and group.
        crossed: one per order and arm.
        left_out: what was asked for and not made.
        wrong: wrong elements in checked results, and ranks of cells whose result was wrong.
        leftover_processes: of all cells.
    """

    arms: list[Row]
    rows: list[Row]
    at_once: list[Row]
    crossed: list[Row]
    left_out: list[Row]
    wrong: int
    leftover_processes: int

    def to_json(self) -> Row:
        """Plain data: the keys of the document."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was found out."""
        return not (self.rows or self.at_once or self.crossed)


def groups_of(results: Sequence[Result]) -> GroupsFound:
    """All that the lines of a run come to."""
    arms = {line.arm: line for line in of_kind(results, ArmFound)}
    times, cells = of_kind(results, GroupTimes), of_kind(results, CrossedCell)
    return GroupsFound(
        arms=[
            {"arm": arm.arm, "implementation": arm.implementation, "device": arm.device, "reason": arm.reason}
            for arm in arms.values()
        ],
        rows=cost_rows(of_kind(results, GroupCosts)),
        at_once=at_once_rows(times),
        crossed=crossed_rows(cells),
        left_out=[
            {"part": line.part, "arm": line.arm, "reason": line.reason} for line in of_kind(results, LeftOut)
        ],
        wrong=sum(line.wrong for line in times) + sum(cell.wrong for cell in cells),
        leftover_processes=sum(cell.leftover_processes for cell in cells),
    )


def cost_rows(lines: Sequence[GroupCosts]) -> list[Row]:
    """One row per arm, way and number of groups: medians over epochs.

    Times are of all the groups together. ``total_us`` is what there is to pay until every group has had its
    first collective and a first message between its ranks: where a lazy backend pays later than an eager one,
    both pay it within that. What is held is of the rank that holds most, ``leaked`` what of it stays.
    """
    by_case = grouped(lines, "kind", "groups", "way", "arm")
    rows = []
    for own in by_case.values():
        first = own[0]
        rows.append(
            {
                "arm": first.arm,
                "implementation": first.implementation,
                "way": first.way,
                "kind": first.kind,
                "groups": first.groups,
                "group_size": first.group_size,
                "nranks": first.nranks,
                "epochs": len(own),
                "peers": first.peers,
                **_times(own),
                **_held(own),
                "communicators": _communicators(own),
                "counted": first.counted,
            }
        )
    rows.sort(key=lambda row: (row["kind"], row["way"], row["groups"]))
    return [{**row, **_against_base(row, by_case)} for row in rows]


def _total(line: GroupCosts) -> float:
    return sum(line.new_us) + sum(line.first_us) + sum(line.p2p_us)


def _times(own: Sequence[GroupCosts]) -> Row:
    total = middle([_total(line) for line in own])
    found: Row = {
        "total_us": total["median"],
        "ci_low_us": total["ci_low"],
        "ci_high_us": total["ci_high"],
        "per_group_us": total["median"] / own[0].groups,
    }
    for name in ("new_us", "first_us", "later_us", "p2p_us", "destroy_us"):
        found[name] = median(sum(getattr(line, name)) for line in own)
    for name in ("suspend_us", "resume_us"):
        sums = [sum(times) for line in own if (times := getattr(line, name)) is not None]
        found[name] = median(sums) if sums else None
    # The first group of a process loads libraries and meets the others for the first time.
    found["first_group_us"] = median(line.new_us[0] for line in own)
    return found


def _held(own: Sequence[GroupCosts]) -> Row:
    found: Row = {}
    for name in (*_BYTES, *_HELD):
        found[name] = _median([_rise(line.readings["before"], line.readings["used"], name) for line in own])
    for name in (*_STAYING, *_HELD):
        stays = [_rise(line.readings["before"], line.readings["destroyed"], name) for line in own]
        found[f"leaked_{name}"] = _median(stays)
    # It speaks of groups that are there, so that before them it has nothing to say.
    told = [line.readings["used"].backend_bytes for line in own]
    found["backend_bytes"] = _median([None if values is None else max(values) for values in told])
    return found


def _rise(before: Reading, after: Reading, name: str) -> int | None:
    """Of the rank on which it rose most; of the peak over what was resident before."""
    was = before.rss_bytes if name == "peak_bytes" else getattr(before, name)
    now = getattr(after, name)
    return None if was is None or now is None else max(b - a for a, b in zip(was, now, strict=True))


def _median(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _communicators(own: Sequence[GroupCosts]) -> float | None:
    return _median([None if line.communicators is None else max(line.communicators) for line in own])


def _against_base(row: Row, by_case: dict[Any, list[GroupCosts]]) -> Row:
    """``total_us`` over that of the first arm that has the same case, paired by epoch."""
    same = [key for key in by_case if key[:3] == (row["kind"], row["groups"], row["way"])]
    base, new = by_case[same[0]], by_case[row["kind"], row["groups"], row["way"], row["arm"]]
    if base is new:
        return {"base": row["arm"], "ratio": None, "ratio_ci_low": None, "ratio_ci_high": None}
    totals = {line.epoch: _total(line) for line in base}
    pairs = [(totals[line.epoch], _total(line)) for line in new if line.epoch in totals]
    found = ratio([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return {
        "base": same[0][3],
        "ratio": found["ratio"],
        "ratio_ci_low": found["ci_low"],
        "ratio_ci_high": found["ci_high"],
    }


def at_once_rows(lines: Sequence[GroupTimes]) -> list[Row]:
    """One row per arm, size and group: ``slowdown`` is its time at once over alone, paired by epoch."""
    rows = []
    for own in grouped(lines, "arm", "nbytes", "topology", "number").values():
        first = own[0]
        paired = [(median(line.alone_us), median(line.together_us)) for line in own if line.alone_us]
        found = ratio([pair[0] for pair in paired], [pair[1] for pair in paired])
        together = middle([median(line.together_us) for line in own])
        rows.append(
            {
                "op": first.op,
                "nbytes": first.nbytes,
                "arm": first.arm,
                "topology": first.topology,
                "group": first.number,
                "ranks": list(first.ranks),
                "at_once": first.at_once,
                "epochs": len(own),
                "n": sum(len(line.together_us) for line in own),
                "alone_us": median(pair[0] for pair in paired) if paired else None,
                "together_us": together["median"],
                "slowdown": found["ratio"],
                "ci_low": found["ci_low"],
                "ci_high": found["ci_high"],
                "wrong": sum(line.wrong for line in own),
            }
        )
    return sorted(rows, key=lambda row: (row["nbytes"], row["topology"], row["group"]))


def crossed_rows(cells: Sequence[CrossedCell]) -> list[Row]:
    """One row per order and arm: what became of it, and the smallest size that did not complete."""
    rows = []
    for own in grouped(cells, "order", "arm").values():
        by_size = dict(sorted({cell.nbytes: cell for cell in own}.items()))
        bad = next((cell for cell in by_size.values() if cell.outcome != "completed"), None)
        good = [size for size, cell in by_size.items() if bad is None or size < bad.nbytes]
        known = ISSUE_ORDERS.get(own[0].order)
        rows.append(
            {
                "order": own[0].order,
                "arm": own[0].arm,
                "description": known.description if known else None,
                "safe": known.safe if known else None,
                "topologies": list(own[0].topologies),
                "crossing": list(own[0].crossing),
                "cannot_end": own[0].cannot_end,
                "outcome": "completed" if bad is None else bad.outcome,
                "from_nbytes": None if bad is None else bad.nbytes,
                "completed_to_nbytes": max(good, default=None),
                "cells": [
                    {
                        "nbytes": cell.nbytes,
                        "outcome": cell.outcome,
                        "said": dict(cell.said),
                        "seconds": cell.seconds,
                        "wrong": cell.wrong,
                        "leftover_processes": cell.leftover_processes,
                    }
                    for cell in by_size.values()
                ],
            }
        )
    return rows


def leaks(row: Row) -> list[str]:
    """What of a row's groups stays when they have ended, in words: never memory, which a library may keep."""
    names = {"files": "open files", "connections": "connections", "threads": "threads"}
    return [
        f"{row[f'leaked_{name}']:g} {words}"
        for name, words in names.items()
        if (row[f"leaked_{name}"] or 0) > 0
    ]
