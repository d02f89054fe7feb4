"""What a transport run found: per way its times with intervals over epochs, and its ratio to broadcast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from ncclbench.stats.intervals import FEWEST_EPOCHS, LogMean, holm, log_ratio
from ncclbench.stats.over_epochs import FEWEST_EPOCHS as FEWEST_WITH_INTERVAL
from ncclbench.stats.over_epochs import t_interval
from ncclbench.store.model import Result
from ncclbench.store.transfers import TransferFault, TransferLatency, TransferStatus, TransferTimes
from ncclbench.tables.transfers import BASE_WAY


@dataclass(frozen=True, slots=True)
class OverEpochs:
    """One time over the epochs, microseconds.

    Attributes:
        median: of the epochs' medians.
        low, high: 95 % t interval of their geometric mean; None of fewer than three epochs, and where one of
            them is 0.
    """

    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A way's time over that of broadcast in the same epochs: below 1 it is faster.

    Attributes:
        base: the way it is held against, and its arm.
        ratio, low, high: mean effect over epochs and its 95 % interval (paired, Student's t on logarithms);
            the interval is None where it is all of it that is known.
        p_holm: of "no difference", corrected for all ways of the run; None likewise.
        verdict: "faster" or "slower" where p_holm is below 5 %, else "unclear".
    """

    base: str
    ratio: float
    low: float | None
    high: float | None
    p_holm: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class WayRow:
    """One way on one arm; times are None where it could not be had.

    Attributes:
        way, arm: as in the lines; ``kind``: "one-sided" or "two-sided".
        nbytes, tensors, generators: what was moved to how many.
        epochs: how many it has; ``n``: repetitions in all.
        total_us, trainer_us, frozen_us, generator_us, stale_us: as in ``TransferTimes``.
        GBs: all weights once over total_us, 1e9 bytes a second.
        slowdown: median over epochs.
        steps, torn, wrong: over all epochs.
        against: its ratio to broadcast; None of broadcast itself and where there is none.
        status: "ok", "wrong", "unavailable" or "failed"; ``reason``: why it is not ok.
    """

    way: str
    arm: str | None
    kind: str
    nbytes: int | None
    tensors: int | None
    generators: int | None
    epochs: int
    n: int
    total_us: OverEpochs | None
    trainer_us: OverEpochs | None
    frozen_us: OverEpochs | None
    generator_us: OverEpochs | None
    stale_us: OverEpochs | None
    GBs: float | None
    slowdown: float | None
    steps: int
    torn: int
    wrong: int | None
    against: Ratio | None
    status: str
    reason: str | None

    @property
    def name(self) -> str:
        """The way, with its arm where it has one."""
        return way_name(self.way, self.arm)

    @property
    def is_one_sided(self) -> bool:
        """Whether the other side takes no part."""
        return self.kind == "one-sided"

    def to_json(self) -> dict[str, Any]:
        """Plain data, flat, as ``transport --json`` has it in ``rows``."""
        row: dict[str, Any] = {
            key: value
            for key, value in asdict(self).items()
            if not isinstance(value, dict) and key != "against"
        }
        for name in _TIMES:
            found: OverEpochs | None = getattr(self, name)
            stem = name.removesuffix("_us")
            row[name] = None if found is None else found.median
            row[f"{stem}_ci_low_us"] = None if found is None else found.low
            row[f"{stem}_ci_high_us"] = None if found is None else found.high
        ratio = self.against
        row["base"] = None if ratio is None else ratio.base
        row["ratio"] = None if ratio is None else ratio.ratio
        row["ci_low"] = None if ratio is None else ratio.low
        row["ci_high"] = None if ratio is None else ratio.high
        row["p_holm"] = None if ratio is None else ratio.p_holm
        row["verdict"] = None if ratio is None else ratio.verdict
        return row


_TIMES = ("total_us", "trainer_us", "frozen_us", "generator_us", "stale_us")


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Small messages of one size by one way, over all epochs; ``n`` repetitions."""

    way: str
    arm: str | None
    kind: str
    nbytes: int
    n: int
    total_us: OverEpochs

    def to_json(self) -> dict[str, Any]:
        """Plain data, as ``transport --json`` has it in ``latency``."""
        found = self.total_us
        return {
            "way": self.way,
            "arm": self.arm,
            "kind": self.kind,
            "nbytes": self.nbytes,
            "n": self.n,
            "total_us": found.median,
            "total_ci_low_us": found.low,
            "total_ci_high_us": found.high,
        }


def way_name(way: str, arm: str | None) -> str:
    """The way, with its arm where it has one: ``broadcast on gloo``."""
    return way if arm is None else f"{way} on {arm}"


def kind_of(arm: str | None) -> str:
    """A way that a process group carries is two-sided; any other is not."""
    return "one-sided" if arm is None else "two-sided"


def over_epochs(values: Iterable[float]) -> OverEpochs | None:
    """Epochs together; None where there is none."""
    known = list(values)
    if not known:
        return None
    low, high = t_interval(known)
    return OverEpochs(median(known), low, high)


def transfer_rows(results: Sequence[Result], share_gpu: bool = False) -> list[WayRow]:
    """A row for each way and arm, in the order in which they first came; what cannot be had stands last.

    Args:
        share_gpu: ranks shared a GPU, so that bytes over time is no bandwidth.
    """
    groups: dict[tuple[str, str | None], dict[int, TransferTimes]] = {}
    for result in results:
        if isinstance(result, TransferTimes):
            groups.setdefault((result.way, result.arm), {})[result.epoch] = result
    ratios = _ratios(groups)
    rows = [
        _row(way, arm, own, ratios.get((way, arm))) for (way, arm), own in sorted(groups.items(), key=_place)
    ]
    if share_gpu:
        rows = [replace(row, GBs=None) for row in rows]
    return [*rows, *(_not_there(one) for one in results if isinstance(one, TransferStatus))]


def _place(entry: tuple[tuple[str, str | None], Any]) -> tuple[bool, tuple[str, str]]:
    """Two-sided ways first, then by name: the run's own order is random."""
    way, arm = entry[0]
    return arm is None, (way, arm or "")


def _row(way: str, arm: str | None, own: dict[int, TransferTimes], against: Ratio | None) -> WayRow:
    lines = list(own.values())
    first = lines[0]
    times = {
        name: over_epochs(median(found) for line in lines if (found := getattr(line, name)) is not None)
        for name in _TIMES
    }
    total = times["total_us"]
    wrong = sum(line.wrong for line in lines)
    slowdowns = [line.slowdown for line in lines if line.slowdown is not None]
    return WayRow(
        way=way,
        arm=arm,
        kind=kind_of(arm),
        nbytes=first.nbytes,
        tensors=first.tensors,
        generators=first.generators,
        epochs=len(lines),
        n=sum(len(line.total_us) for line in lines),
        **times,
        GBs=first.nbytes / total.median / 1e3 if total is not None and total.median > 0 else None,
        slowdown=median(slowdowns) if slowdowns else None,
        steps=sum(line.steps for line in lines),
        torn=sum(line.torn for line in lines),
        wrong=wrong,
        against=None if wrong else against,
        status="wrong" if wrong else "ok",
        reason=f"{wrong:,} bytes were wrong" if wrong else None,
    )


def _not_there(status: TransferStatus) -> WayRow:
    return WayRow(
        way=status.way,
        arm=status.arm,
        kind=kind_of(status.arm),
        nbytes=None,
        tensors=None,
        generators=None,
        epochs=0,
        n=0,
        total_us=None,
        trainer_us=None,
        frozen_us=None,
        generator_us=None,
        stale_us=None,
        GBs=None,
        slowdown=None,
        steps=0,
        torn=0,
        wrong=None,
        against=None,
        status=status.status,
        reason=status.reason,
    )


def _ratios(
    groups: dict[tuple[str, str | None], dict[int, TransferTimes]],
) -> dict[tuple[str, str | None], Ratio]:
    """By way and arm against broadcast of the first arm, paired by epoch."""
    base = next((key for key in groups if key[0] == BASE_WAY), None)
    if base is None:
        return {}
    effects: dict[tuple[str, str | None], tuple[float, LogMean | None]] = {}
    for key, own in groups.items():
        shared = sorted(set(own) & set(groups[base]))
        pairs = [(median(groups[base][epoch].total_us), median(own[epoch].total_us)) for epoch in shared]
        if key == base or not pairs or min(map(min, pairs)) <= 0:
            continue
        bases, news = np.array(pairs).T
        effect = log_ratio(bases, news) if len(pairs) >= FEWEST_WITH_INTERVAL else None
        effects[key] = float(np.exp(np.mean(np.log(news / bases)))), effect
    known = [key for key, (_, effect) in effects.items() if effect is not None]
    corrected = dict(zip(known, holm([_p(effects[key][1]) for key in known]), strict=True))
    return {
        key: _ratio(way_name(*base), ratio, effect, corrected.get(key))
        for key, (ratio, effect) in effects.items()
    }


def _p(effect: LogMean | None) -> float:
    return 1.0 if effect is None else effect.p_different()


def _ratio(base: str, ratio: float, effect: LogMean | None, p_holm: float | None) -> Ratio:
    if effect is None or p_holm is None:
        return Ratio(base, ratio, None, None, None, "unclear")
    low, high = effect.interval()
    differs = effect.n >= FEWEST_EPOCHS and p_holm < 0.05
    verdict = ("faster" if ratio < 1 else "slower") if differs else "unclear"
    return Ratio(base, ratio, low, high, p_holm, verdict)


def latency_rows(results: Sequence[Result]) -> list[LatencyRow]:
    """A row for each way, arm and size."""
    groups: dict[tuple[str, str | None, int], list[TransferLatency]] = {}
    for result in results:
        if isinstance(result, TransferLatency):
            groups.setdefault((result.way, result.arm, result.nbytes), []).append(result)
    rows = []
    for way, arm, nbytes in sorted(groups, key=lambda key: (_place((key[:2], None)), key[2])):
        own = groups[way, arm, nbytes]
        found = over_epochs(median(line.total_us) for line in own)
        if found is not None:
            n = sum(len(line.total_us) for line in own)
            rows.append(LatencyRow(way, arm, kind_of(arm), nbytes, n, found))
    return rows


def transfer_faults(results: Sequence[Result]) -> list[TransferFault]:
    """What was seen of faults, in the order in which they were made."""
    return [result for result in results if isinstance(result, TransferFault)]


def fastest(rows: Sequence[WayRow], kind: str) -> WayRow | None:
    """The way of that kind that brings the weights soonest, with right data; None where there is none."""
    good = [row for row in rows if row.kind == kind and row.status == "ok" and row.total_us is not None]
    return min(good, key=lambda row: row.total_us.median if row.total_us else 0.0, default=None)
