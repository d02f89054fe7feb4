"""What the lines of a point-to-point run come to: rows over epochs, and the ordering matrix by order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ncclbench.stats.intervals import log_mean
from ncclbench.stats.lines import grouped, of_kind
from ncclbench.stats.over_epochs import FEWEST_EPOCHS, t_interval
from ncclbench.store.model import Result
from ncclbench.store.p2p import (
    ArmFound,
    FirstCalls,
    LeftOut,
    OrderingCell,
    PeerTimes,
    SemanticsCheck,
    WayTimes,
)
from ncclbench.tables.orderings import ORDERINGS
from ncclbench.tables.semantics import SEMANTICS
from ncclbench.tables.ways import WAYS
from ncclbench.units import count_text, format_bytes

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class P2p:
    """What a run holds, as ``--json`` has it.

    Attributes:
        arms: what each arm is.
        rows: the ways, one per way, arm, size and direction.
        first_calls: one per arm and peer.
        ordering: one per order and arm.
        peers: one per arm, size, number of peers and collective beside them.
        semantics: one per question and arm.
        left_out: parts that were asked for and not made.
        wrong: messages that arrived wrong.
        leftover_processes: of all cells.
    """

    arms: list[Row]
    rows: list[Row]
    first_calls: list[Row]
    ordering: list[Row]
    peers: list[Row]
    semantics: list[Row]
    left_out: list[Row]
    wrong: int
    leftover_processes: int

    def to_json(self) -> Row:
        """Plain data: the keys of the document."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was found out."""
        return not (self.rows or self.first_calls or self.ordering or self.peers or self.semantics)


def p2p_of(results: Sequence[Result], share_gpu: bool = False) -> P2p:
    """All that the lines of a run come to; of ranks that share a GPU without bandwidth."""
    ways, cells = of_kind(results, WayTimes), of_kind(results, OrderingCell)
    peers, checks = of_kind(results, PeerTimes), of_kind(results, SemanticsCheck)
    arms = {line.arm: line for line in of_kind(results, ArmFound)}
    return P2p(
        arms=[
            {"arm": arm.arm, "implementation": arm.implementation, "device": arm.device, "reason": arm.reason}
            for arm in arms.values()
        ],
        rows=[{**row, "bandwidth_GBs": None} if share_gpu else row for row in way_rows(ways, arms)],
        first_calls=first_rows(of_kind(results, FirstCalls)),
        ordering=ordering_rows(cells),
        peers=peer_rows(peers),
        semantics=[_semantics(check) for check in checks],
        left_out=[
            {"part": line.part, "arm": line.arm, "reason": line.reason} for line in of_kind(results, LeftOut)
        ],
        wrong=sum(
            [*(line.wrong for line in ways), *(cell.wrong for cell in cells), *(line.wrong for line in peers)]
        ),
        leftover_processes=sum(cell.leftover_processes for cell in cells)
        + sum(check.leftover_processes for check in checks),
    )


def way_rows(lines: Sequence[WayTimes], arms: dict[str, ArmFound] | None = None) -> list[Row]:
    """One row per way, arm, size and direction; medians of the epochs' medians, microseconds.

    ``latency_us`` is until the message is there, of a way that comes back half of that. ``bandwidth_GBs``
    counts what goes one way, also where as much comes back at the same time.
    """
    rows = []
    for (way, arm, nbytes, both), own in grouped(lines, "way", "arm", "nbytes", "both").items():
        messages = own[0].messages
        there = _over_epochs([line.there_us for line in own])
        round_trip = way in WAYS and WAYS[way].round_trip
        trips = 2 if round_trip else 1
        latency_us = there["median_us"] / trips
        rows.append(
            {
                "way": way,
                "arm": arm,
                "implementation": (arms or {})[arm].implementation if arm in (arms or {}) else None,
                "nbytes": nbytes,
                "both": both,
                "messages": messages,
                "round_trip": round_trip,
                "n": sum(len(line.total_us) for line in own),
                "epochs": len(own),
                "host_us": _over_epochs([line.host_us for line in own])["median_us"],
                "total_us": _over_epochs([line.total_us for line in own])["median_us"],
                "free_us": _over_epochs([line.free_us for line in own])["median_us"],
                "latency_us": latency_us,
                "ci_low_us": None if there["ci_low_us"] is None else there["ci_low_us"] / trips,
                "ci_high_us": None if there["ci_high_us"] is None else there["ci_high_us"] / trips,
                "bandwidth_GBs": _rate(messages * nbytes, latency_us),
                "wrong": sum(line.wrong for line in own),
            }
        )
    return rows


def way_words(row: Row) -> str:
    """A way with its direction: "isend", "isend, both ways"."""
    return f"{row['way']}, both ways" if row["both"] else str(row["way"])


def size_words(nbytes: int) -> str:
    """A size in a sentence: "1 byte", "8 bytes", "64K"."""
    text = format_bytes(nbytes)
    return count_text(nbytes, "byte") if text.isdigit() else text


def by_arm(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by the arm they are of, in the order in which arms first come."""
    arms: dict[str, list[Row]] = {}
    for row in rows:
        arms.setdefault(row["arm"], []).append(row)
    return arms


def quotable(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """The rows of one arm that its latency and its bandwidth are quoted from; None where it has none.

    Latency: the smallest message that comes back, since there one clock reads both ends; where none did, the
    smallest that goes one way, which is not free of how the ranks left the fence.
    """
    one_way = [row for row in rows if not row["both"] and row["bandwidth_GBs"] is not None]
    if not one_way:
        return None
    nearest = min(one_way, key=lambda row: (not row["round_trip"], row["nbytes"], row["latency_us"]))
    return nearest, max(one_way, key=lambda row: row["bandwidth_GBs"])


def first_rows(lines: Sequence[FirstCalls]) -> list[Row]:
    """One row per arm and peer: the first message in a fresh group against later ones.

    ``cold_us``: what making the group and the first message took together, which is what backends that pay
    at different moments are compared by.
    """
    rows = []
    for (arm, src, dst), own in grouped(lines, "arm", "src", "dst").items():
        first, later = [line.first_us for line in own], _over_epochs([line.later_us for line in own])
        first_us = median(first)
        rows.append(
            {
                "arm": arm,
                "src": src,
                "dst": dst,
                "nbytes": own[0].nbytes,
                "epochs": len(own),
                "init_us": median(line.init_us for line in own),
                "first_us": first_us,
                "first_worst_us": max(first),
                "cold_us": median(line.init_us + line.first_us for line in own),
                "later_us": later["median_us"],
                "ratio": first_us / later["median_us"] if later["median_us"] else None,
            }
        )
    return sorted(rows, key=lambda row: int(row["dst"]))


def ordering_rows(cells: Sequence[OrderingCell]) -> list[Row]:
    """One row per order and arm: what became of it, and the smallest size that did not complete.

    ``stood``: of that size, where each rank stood or what it raised. A cell that was seen twice counts as it
    was seen last. Sizes between two that completed were not tried.
    """
    rows = []
    for (order, arm), own in grouped(cells, "order", "arm").items():
        by_size = dict(sorted({cell.nbytes: cell for cell in own}.items()))
        bad = next((cell for cell in by_size.values() if cell.outcome != "completed"), None)
        good = [cell.nbytes for cell in by_size.values() if cell.outcome == "completed"]
        known = ORDERINGS.get(order)
        rows.append(
            {
                "order": order,
                "arm": arm,
                "description": known.description if known else None,
                "safe": known.safe if known else None,
                "outcome": "completed" if bad is None else bad.outcome,
                "from_nbytes": None if bad is None else bad.nbytes,
                "completed_to_nbytes": max(
                    (size for size in good if bad is None or size < bad.nbytes), default=None
                ),
                "stood": "" if bad is None else _stood(bad),
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


def _stood(cell: OrderingCell) -> str:
    return ", ".join(f"rank {rank} {said}" for rank, said in cell.said.items())


def peer_rows(lines: Sequence[PeerTimes]) -> list[Row]:
    """One row per arm, size, number of peers and collective beside them.

    ``ratio`` is all at once over one after the other: the time of all over the sum of what each takes alone,
    by epoch. Where nothing waits for another it is ``ratio_at_best``: the longest of them over the sum.
    """
    rows = []
    keys = grouped(lines, "arm", "nbytes", "peers", "beside")
    for (arm, nbytes, peers, beside), own in keys.items():
        total, one = (_over_epochs([getattr(line, name) for line in own]) for name in ("total_us", "one_us"))
        others = [line.beside_us for line in own if line.beside_us is not None]
        beside_us = _over_epochs(others)["median_us"] if others else None
        ratios = [ratio for ratio in map(_serial_ratio, own) if ratio is not None]
        mean = log_mean(ratios) if len(ratios) >= FEWEST_EPOCHS else None
        low, high = (None, None) if mean is None else mean.interval()
        alone = [one["median_us"]] * peers if beside_us is None else [one["median_us"], beside_us]
        rows.append(
            {
                "arm": arm,
                "nbytes": nbytes,
                "peers": peers,
                "beside": beside,
                "epochs": len(own),
                "n": sum(len(line.total_us) for line in own),
                "total_us": total["median_us"],
                "one_us": one["median_us"],
                "beside_us": beside_us,
                "ratio": median(ratios) if ratios else None,
                "ci_low": low,
                "ci_high": high,
                "ratio_at_best": max(alone) / sum(alone) if sum(alone) > 0 else None,
                "wrong": sum(line.wrong for line in own),
            }
        )
    return sorted(rows, key=lambda row: (row["beside"] is not None, row["nbytes"], row["peers"]))


def _serial_ratio(line: PeerTimes) -> float | None:
    """Of one epoch: all at once over one after the other."""
    one_us = median(line.one_us)
    serial_us = one_us * line.peers if line.beside_us is None else one_us + median(line.beside_us)
    return median(line.total_us) / serial_us if serial_us > 0 else None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Questions of the self-test by what came of them, on whatever arm; names in SEMANTICS, each once."""

    asked: list[str]
    otherwise: list[str]
    unanswered: list[str]


def outcomes_of(rows: Sequence[Row]) -> Outcomes:
    """Of rows of the self-test; a question that has nothing to ask here counts nowhere."""

    def named(*outcomes: str) -> list[str]:
        return list(dict.fromkeys(row["check"] for row in rows if row["outcome"] in outcomes))

    return Outcomes(named("as-documented", "otherwise"), named("otherwise"), named("unanswered"))


def _semantics(check: SemanticsCheck) -> Row:
    question = SEMANTICS.get(check.check)
    return {
        "check": check.check,
        "arm": check.arm,
        "question": question.question if question else None,
        "documented": question.documented if question else None,
        "silent": question is not None and question.silent,
        "outcome": check.outcome,
        "said": check.said,
        "value": check.value,
        "leftover_processes": check.leftover_processes,
    }


def _over_epochs(times_us: Sequence[Sequence[float]]) -> Row:
    """The median of the epochs' medians, and the 95 % t interval of their geometric mean."""
    medians = [median(times) for times in times_us]
    low, high = t_interval(medians)
    return {"median_us": median(medians), "ci_low_us": low, "ci_high_us": high}


def _rate(nbytes: float, time_us: float) -> float | None:
    """GB/s."""
    return nbytes / time_us / 1e3 if time_us > 0 else None
