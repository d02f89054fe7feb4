"""Calibrations in which nothing is wrong, for tests to spoil one thing of."""

from __future__ import annotations

from typing import Any


def quiet_environment(ranks: int = 2, physical: int = 8, quota: float | None = None) -> dict[str, Any]:
    """One host on which every rank has a core."""
    return {
        "hosts": [{"name": "node-00", "boot_id": "b", "cpu_governor": None, "logical_cores": 16}],
        "common": {
            "cores": "0-7",
            "usable_cores": 8,
            "usable_physical_cores": physical,
            "cpu_quota_cores": quota,
            **dict.fromkeys(("torch", "torch_git", "nccl"), "2.15.0"),
        },
        "ranks": [{"rank": rank, "host": 0, "local_rank": rank, "device": "cpu"} for rank in range(ranks)],
        "differences": [],
    }


def entry(**fields: Any) -> dict[str, Any]:
    """A resolution in which nothing is wrong."""
    return {
        "op": "all_reduce",
        "dtype": "float32",
        "nbytes": 65536,
        "mode": "isolated",
        "statistic": "p25",
        "time_us": 500.0,
        "spread": 0.04,
        "epoch_s": 0.1,
        "timed_s": 0.05,
        "iters_in_epoch": 20,
        "smallest": 0.02,
        "epochs": 100,
        "drift": 1.0,
        "drifts": False,
        "autocorrelation": 0.0,
        "correlated": False,
        "time_drift": 1.0,
        "time_drifts": False,
        "warming": False,
        "spread_process": None,
        "spread_group": 0.03,
        "spread_iteration": 0.02,
        "p_process": 0.5,
        "beside_over_alone": {"ratio": 1.0, "ci_low": 0.97, "ci_high": 1.03},
        **fields,
    }


def document_of(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A calibration in which nothing is wrong."""
    return {
        "schema": 1,
        "created": "2026-11-29T15:50:00+00:00",
        "ncclbench": "0.1.0",
        "hosts": ["node-00"],
        "nranks": 2,
        "backend": "gloo",
        "device": "cpu",
        "comparisons": 200,
        "false_verdicts": 8,
        "false_verdict_rate": 0.04,
        "rate_low": 0.017,
        "rate_high": 0.077,
        "same": 50,
        "budget_s": 10.0,
        "group_s": 0.01,
        "process_s": 0.5,
        "resolution": list(entries),
        "advice": [],
        **fields,
    }
