"""Runs made of numbers, for tests of the report: real plans and units, no process measured anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ncclbench.plan.model import Arm, Case, Plan, PlannedCase
from ncclbench.store.model import Run, Unit
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES

SIZES = tuple(2**power for power in range(3, 27))
SMALL = (8, 4096, 1 << 20)

# What travels from a file into a page and must stay text there.
HOSTILE = "<script>alert('1')</script>\"'&\u2028\u2029</script><img src=x onerror=alert(2)>"


def make_case(op: str, nbytes: int, mode: str = "isolated", dtype: str = "float32", nranks: int = 2) -> Case:
    """A case as a plan would hold it."""
    entry = COLLECTIVES[op]
    return Case(
        op=op,
        dtype=dtype,
        redop="sum" if entry.reduces else None,
        root=0 if entry.rooted else None,
        nbytes=nbytes,
        count=nbytes // DTYPES[dtype].itemsize,
        topology="world",
        mode=mode,
        async_op=False,
        in_place=entry.in_place_forms[0],
        nranks=nranks,
    )


def make_plan(
    cases: Sequence[Case], arms: Sequence[str], *, nranks: int, iters: int, epochs: int, seed: int
) -> Plan:
    """A plan with everything else as a sweep has it by default."""
    return Plan(
        cases=tuple(PlannedCase(case, "planned", None, 4 * case.nbytes) for case in cases),
        arms=tuple(Arm(arm, arm.split("#")[0]) for arm in arms),
        base_arm=arms[0],
        nranks=nranks,
        iters=iters,
        warmup_iters=5,
        check=1,
        epochs=epochs,
        epoch_kind="group",
        statistic=None,
        margin_ratio=0.03,
        margin_us=1.0,
        time_budget_s=None,
        timeout_s=60.0,
        share_gpu=False,
        seed=seed,
    )


def make_host(index: int) -> dict[str, Any]:
    """What a run keeps of a host."""
    return {
        "name": f"node-{index:02d}",
        "cpu": {"model": "EPYC 9554", "cores": 64},
        "memory_bytes": 810_000_000_000,
        "torch": "2.15.0",
        "nccl": "2.30.7",
        "driver": "590.44",
        "variables": {"NCCL_DEBUG": "WARN"},
    }


def make_run(
    folder: Path = Path("results/demo"),
    *,
    ops: Sequence[str] = ("all_reduce", "broadcast"),
    sizes: Sequence[int] = SIZES,
    modes: Sequence[str] = ("isolated", "back-to-back"),
    dtypes: Sequence[str] = ("float32",),
    arms: Sequence[str] = ("gloo",),
    slower: dict[str, float] | None = None,
    epochs: int = 3,
    iters: int = 21,
    nranks: int = 2,
    hosts: int = 1,
    epoch_spread: float = 0.02,
    noise: float = 0.08,
    label: str | None = "demo",
    seed: int = 1,
    calibration: dict[str, Any] | None = None,
) -> Run:
    """A complete run.

    Args:
        slower: factor on an arm's times, by arm.
        iters: samples per case and arm, a multiple of ``epochs``.
        epoch_spread: standard deviation of the log of an epoch's level.
        noise: scale of the log-normal noise of single samples.
        calibration: of the machine, as kept in run.json.
    """
    generator = np.random.default_rng(seed)
    cases = [
        make_case(op, nbytes, mode, dtype, nranks)
        for op in ops
        for dtype in dtypes
        for mode in modes
        for nbytes in sizes
    ]
    plan = make_plan(cases, arms, nranks=nranks, iters=iters, epochs=epochs, seed=seed)
    run = Run(folder=folder, meta=make_meta(plan, label, hosts) | {"calibration": calibration}, plan=plan)
    for case in cases:
        k = 8 if case.mode == "back-to-back" else 1
        base_us = (42.0 if k == 1 else 24.0) + case.nbytes / 2200 * (1.0 if k == 1 else 0.86)
        for arm in arms:
            time_us = base_us * (slower or {}).get(arm, 1.0)
            run.units[case.key, arm] = [
                make_unit(
                    generator, case, arm, epoch, k, time_us, iters // epochs, nranks, epoch_spread, noise
                )
                for epoch in range(epochs)
            ]
    run.cold = [
        {
            "arm": arm,
            "topology": "world",
            "epoch": epoch,
            "attempt": 0,
            "rank": rank,
            "init_us": 2400.0 + 90 * rank + (9000 if epoch == 0 else 0),
            "first_op_us": 800.0 + 10 * rank + 35 * epoch,
        }
        for arm in arms
        for epoch in range(epochs)
        for rank in range(nranks)
    ]
    return run


def make_unit(
    generator: np.random.Generator,
    case: Case,
    arm: str,
    epoch: int,
    k: int,
    time_us: float,
    n: int,
    nranks: int,
    epoch_spread: float = 0.02,
    noise: float = 0.08,
) -> Unit:
    """One epoch's samples: a level of the epoch, noise with a tail, the last rank slightly slower."""
    level_us = k * time_us * np.exp(generator.normal(0, epoch_spread))
    total_us = level_us * np.exp(noise * generator.gamma(1.0, 1.0, (nranks, n)))
    total_us[-1] *= 1.03
    start_us = np.arange(n) * level_us * 3 + generator.exponential(2.0, (nranks, n))
    return Unit(
        case=case.key,
        arm=arm,
        epoch=epoch,
        attempt=0,
        k=k,
        start_us=start_us,
        launch_us=np.full((nranks, n), 6.0),
        device_us=None,
        total_us=total_us,
        visits=(n,),
        turns=(0,),
        wrong=(0,) * nranks,
    )


def make_meta(plan: Plan, label: str | None, hosts: int) -> dict[str, Any]:
    """run.json of a complete run."""
    per_host = -(-plan.nranks // hosts)
    return {
        "schema": 1,
        "kind": "sweep",
        "ncclbench": "0.1.0",
        "label": label,
        "created": "2026-11-29T15:50:00Z",
        "command": ["ncclbench", "sweep", "--ops", "all_reduce,broadcast"],
        "plan": plan.to_json(),
        "environment": {
            "hosts": [make_host(index) for index in range(hosts)],
            "ranks": [
                {"rank": rank, "host": rank // per_host, "local_rank": rank % per_host, "device": "cpu"}
                for rank in range(plan.nranks)
            ],
        },
        "arms": {
            arm.id: {
                "implementation": f"ProcessGroup{arm.backend.title()}, {arm.backend}",
                "device": "cpu",
                "status": "ok",
                "reason": None,
            }
            for arm in plan.arms
        },
        "preflight": [],
        "attempts": [
            {
                "started": "2026-11-29T15:50:00Z",
                "ended": "2026-11-29T15:50:07Z",
                "launcher": "fork",
                "message": "96 rows ok",
            }
        ],
        "fence": {"median_us": 3.1, "p95_us": 8.4, "clock_error_us": 0.0},
        "status": "complete",
        "message": "96 rows ok",
    }


def make_calibration(*cases: tuple[str, int, str, float | None]) -> dict[str, Any]:
    """A calibration of node-00; each case is its operation, bytes, mode and the smallest difference found."""
    return {
        "schema": 1,
        "created": "2026-11-27T09:12:00Z",
        "ncclbench": "0.1.0",
        "hosts": ["node-00"],
        "nranks": 2,
        "backend": "gloo",
        "device": "cpu",
        "comparisons": 60,
        "false_verdicts": 3,
        "false_verdict_rate": 0.05,
        "rate_low": 0.0104,
        "rate_high": 0.1392,
        "same": 41,
        "budget_s": 20.0,
        "group_s": 0.002,
        "process_s": 0.3,
        "resolution": [make_resolution(*case) for case in cases],
        "advice": ["two processes share a core: use --nproc-per-node 2"],
    }


def make_resolution(op: str, nbytes: int, mode: str, smallest: float | None) -> dict[str, Any]:
    """One case of a calibration."""
    return {
        "op": op,
        "dtype": "float32",
        "nbytes": nbytes,
        "mode": mode,
        "statistic": "p25",
        "time_us": 44.0,
        "spread": 0.021,
        "epoch_s": 0.4,
        "timed_s": 0.2,
        "iters_in_epoch": 50,
        "smallest": smallest,
        "epochs": 48,
        "drift": 1.002,
        "drifts": False,
        "autocorrelation": 0.05,
        "correlated": False,
        "time_drift": 1.0,
        "time_drifts": False,
        "warming": False,
        "spread_process": 0.012,
        "spread_group": 0.008,
        "spread_iteration": 0.11,
        "p_process": 0.2,
        "beside_over_alone": {"ratio": 1.013, "ci_low": 0.99, "ci_high": 1.04},
    }


def make_launches(label: str, number: int, **settings: Any) -> list[Run]:
    """Launches of one thing: each draws a level of its own, as separate jobs do."""
    levels = np.random.default_rng(settings.pop("seed", 1)).normal(0, 0.012, number)
    slowed = settings.pop("slower", 1.0)
    runs = []
    for index, level in enumerate(levels):
        run = make_run(
            Path(f"results/{label}-{index}"),
            label=label,
            slower={"gloo": float(slowed * np.exp(level))},
            seed=100 * number + index + len(label),
            **settings,
        )
        run.meta["created"] = f"2026-11-{20 + index}T08:00:00Z"
        runs.append(run)
    return runs


def two_arms_run() -> Run:
    """Two arms on which the new one is clearly slower, on two hosts of different driver."""
    run = make_run(
        sizes=SMALL,
        arms=("nccl-legacy", "nccl2"),
        slower={"nccl2": 1.2},
        epochs=8,
        iters=80,
        nranks=4,
        hosts=2,
        noise=0.01,
        epoch_spread=0.005,
    )
    run.meta["environment"]["hosts"][1]["driver"] = "580.12"
    run.meta["preflight"] = [
        {"severity": "warning", "ranks": [1, 2, 3], "what": "NCCL_DEBUG=INFO prints", "mend": "unset it"},
        {"severity": "error", "ranks": [], "what": "TORCH_DISTRIBUTED_DEBUG=DETAIL", "mend": None},
    ]
    return run


def skip(run: Run, index: int, reason: str) -> None:
    """Make one planned case a skipped one."""
    cases = list(run.plan.cases)
    cases[index] = PlannedCase(cases[index].case, "skipped", reason, 0)
    for arm in run.plan.arms:
        run.units.pop((cases[index].case.key, arm.id), None)
    run.plan = replace(run.plan, cases=tuple(cases))
