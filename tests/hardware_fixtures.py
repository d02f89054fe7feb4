"""Runs as GPU machines would give them: the samples are made up, names and shapes are those of real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from report_fixtures import make_run, make_unit

from ncclbench.plan.model import Case
from ncclbench.store.model import Run

H100 = "NVIDIA H100 80GB HBM3"

SIZES = tuple(2**power for power in range(3, 34, 2))


def busbw_of(peak_GBs: float, latency_us: float = 12.0) -> Callable[[Case], float]:
    """Times of a machine that reaches so much bus bandwidth at large sizes, in microseconds."""
    return lambda case: latency_us + case.nbytes * case.busbw_factor / peak_GBs / 1000


def gpu_run(
    gpu: str = H100,
    *,
    time_us: Callable[[Case], float] | None = None,
    nics: Sequence[dict[str, Any]] = (),
    fabric: Callable[[int], dict[str, Any]] | None = None,
    noise: float = 0.004,
    **settings: Any,
) -> Run:
    """A complete run on GPUs.

    Args:
        gpu: name as the driver gives it.
        time_us: of a case, one operation.
        nics: of every host, as the topology holds them.
        fabric: of a host's index, the NVLink domain of its GPUs.
        settings: as ``make_run`` takes them; 8 ranks on 1 host where they say nothing else.
    """
    usual: dict[str, Any] = {"nranks": 8, "sizes": SIZES, "arms": ("nccl2",), "iters": 15, "label": gpu}
    run = make_run(**usual | settings)
    generator = np.random.default_rng(3)
    wanted = time_us or busbw_of(478.0)
    for (key, arm), units in run.units.items():
        case = next(entry.case for entry in run.plan.cases if entry.case.key == key)
        k = 8 if case.mode == "back-to-back" else 1
        run.units[key, arm] = [
            on_device(generator, case, arm, epoch, k, wanted(case), noise) for epoch in range(len(units))
        ]
    environment = run.meta["environment"]
    environment["common"] = {"gpu": {"name": gpu}, "nccl": "2.30.7", "variables": {}}
    per_host = run.plan.nranks // len(environment["hosts"])
    for index, host in enumerate(environment["hosts"]):
        gpus = [{"index": number, "name": gpu} for number in range(per_host)]
        if fabric is not None:
            gpus = [each | {"fabric": fabric(index)} for each in gpus]
        host["topology"] = {"nics": list(nics), "gpus": gpus}
    for arm in run.meta["arms"].values():
        arm["device"] = "cuda"
    return run


def on_device(
    generator: np.random.Generator, case: Case, arm: str, epoch: int, k: int, time_us: float, noise: float
) -> Any:
    """One epoch's samples with device times."""
    unit = make_unit(generator, case, arm, epoch, k, time_us, 5, case.nranks, noise, noise)
    return replace(unit, device_us=unit.total_us)


def rdma(
    rate_gbps: float, number: int = 8, state: str = "ACTIVE", layer: str = "InfiniBand", first: int = 0
) -> list[dict[str, Any]]:
    """RDMA ports as a topology lists them."""
    return [
        {
            "name": f"mlx5_{index}/1",
            "rdma": True,
            "link_layer": layer,
            "state": state,
            "rate_Gbs": rate_gbps,
        }
        for index in range(first, first + number)
    ]
