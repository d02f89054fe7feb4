"""The rows of an imported run: printed means under the same keys as measured rows, with nothing made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncclbench.stats.summary import UNMEASURED
from ncclbench.store.printed import Printed
from ncclbench.tables.collectives import COLLECTIVES

CLOCK = "imported"

# What is said wherever such numbers stand beside measured ones.
MEANS_ONLY = "imported: means only, no intervals"


def imported_row(printed: Printed, meta: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one printed mean.

    ``median_us`` is that mean, and ``mean_rank_us``, too, where it is an average over ranks, as the tools
    print where they are not asked for another rank's or the slowest one's. Bandwidths are those printed;
    where rounding left nothing of them (0.00 at 8 bytes), or algbw was printed by an old formula, they are
    computed from the time and named in ``derived``. ``n`` and ``epochs`` are null.
    """
    row = {
        "op": printed.op,
        "dtype": printed.dtype,
        "redop": printed.redop,
        "root": printed.root,
        "nbytes": printed.nbytes,
        "count": printed.count,
        "topology": "world",
        "mode": printed.mode,
        "in_place": printed.in_place,
        "nranks": printed.nranks,
        "async": False,
        "arm": printed.arm,
        "implementation": meta.get("arms", {}).get(printed.arm, {}).get("implementation"),
        **UNMEASURED,
        "n": None,
        "epochs": None,
        "clock": CLOCK,
        "p50_us": printed.p50_us,
        "p99_us": printed.p99_us,
        "fastest_us": None,
        "min_us": printed.min_us,
        "max_us": printed.max_us,
        "median_us": printed.time_us,
        "time_half_us": printed.time_half_us,
        "algbw_half_GBs": printed.algbw_half_GBs,
        "busbw_half_GBs": printed.busbw_half_GBs,
        "mean_rank_us": printed.time_us if printed.over_ranks in ("mean", "median") else None,
        "over_ranks": printed.over_ranks,
        "wrong": printed.wrong,
        "max_error": printed.max_error,
        "statistic": "mean",
        "stopped": None,
        "shared_gpu": False,
        "op_from": printed.op_from,
        "nranks_from": printed.nranks_from,
        "file": printed.file,
        "section": printed.section,
        "line": printed.line,
        "repeat": printed.repeat,
    }
    status, reason = _status(printed)
    return {**row, **_bandwidths(printed), "status": status, "reason": reason}


def _status(printed: Printed) -> tuple[str, str | None]:
    if printed.time_us is None:
        return "skipped", printed.reason or "no time printed"
    if printed.wrong:
        return "wrong", f"{printed.wrong} wrong elements"
    if printed.failed:
        return "wrong", printed.reason or "the tool's own check of the data failed"
    return "ok", printed.reason


def _bandwidths(printed: Printed) -> dict[str, Any]:
    """Bytes over time in GB/s (1e9 bytes), also of wrong data: the status tells of these."""
    algbw, busbw = printed.algbw_GBs, printed.busbw_GBs
    derived = list(printed.derived)
    if printed.time_us and printed.nbytes:
        computed = printed.nbytes / printed.time_us / 1000
        factor = _factor(printed)
        if not algbw:
            algbw, busbw = computed, None if factor is None else computed * factor
            derived += ["algbw_GBs", "busbw_GBs"]
        elif algbw == busbw and factor and abs(algbw - factor * computed) < abs(algbw - computed):
            # nccl-tests before June 2020 printed algbw times the factor, for all_gather and reduce_scatter.
            algbw = computed
            derived.append("algbw_GBs")
    return {"algbw_GBs": algbw, "busbw_GBs": busbw, "derived": list(dict.fromkeys(derived))}


def _factor(printed: Printed) -> float | None:
    """busbw over algbw; None where the operation or the ranks are unknown."""
    if printed.op not in COLLECTIVES or printed.nranks is None:
        return None
    return COLLECTIVES[printed.op].busbw_factor(printed.nranks)
