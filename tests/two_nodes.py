"""Two kinds of nodes as a sweep on them would be kept: eight ranks, NVLink-like curves, a protocol switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from report_fixtures import make_case, make_meta

from ncclbench.plan.model import Arm, Plan, PlannedCase
from ncclbench.store.model import Run, Unit
from ncclbench.tables.collectives import COLLECTIVES

NRANKS = 8
NODE_SIZES = tuple(2**power for power in range(3, 31))
OPS = ("all_reduce", "all_gather", "broadcast")


@dataclass(frozen=True, slots=True)
class Node:
    """A kind of node.

    Attributes:
        latency_us, later_us: of all_reduce before and after the switch of protocols.
        first_GBs, busbw_GBs: bus bandwidth before and after.
        switch_bytes: the first size after the switch.
        gpu: of NVML, per rank; host: of the host.
    """

    latency_us: float
    later_us: float
    first_GBs: float
    busbw_GBs: float
    switch_bytes: int
    gpu: dict[str, Any]
    host: dict[str, Any]


HOPPER = Node(
    latency_us=18.0,
    later_us=31.0,
    first_GBs=60.0,
    busbw_GBs=395.0,
    switch_bytes=1 << 18,
    gpu={
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "570.86.15",
        "memory_total_bytes": 85_520_809_984,
        "sm_clock_max_mhz": 1980,
        "sm_clock_set_mhz": 1980,
        "sm_clock_default_mhz": 1980,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "ecc": True,
        "mig": False,
        "nvlinks": 18,
        "nvlinks_up": 18,
    },
    host={"cpu": "Intel(R) Xeon(R) Platinum 8480+", "kernel": "5.15.0-119-generic", "nccl": "2.27.5"},
)
BLACKWELL = Node(
    latency_us=13.0,
    later_us=24.0,
    first_GBs=110.0,
    busbw_GBs=760.0,
    switch_bytes=1 << 19,
    gpu={
        "name": "NVIDIA B200",
        "driver": "580.65.06",
        "memory_total_bytes": 191_503_532_032,
        "sm_clock_max_mhz": 1965,
        "sm_clock_set_mhz": 1965,
        "sm_clock_default_mhz": 1965,
        "power_limit_w": 850.0,
        "power_limit_default_w": 1000.0,
        "ecc": True,
        "mig": False,
        "nvlinks": 18,
        "nvlinks_up": 18,
    },
    host={"cpu": "AMD EPYC 9575F 64-Core Processor", "kernel": "6.8.0-60-generic", "nccl": "2.30.7"},
)


def node_run(
    node: Node,
    host: str,
    *,
    seed: int = 1,
    ops: Sequence[str] = OPS,
    sizes: Sequence[int] = NODE_SIZES,
    modes: Sequence[str] = ("isolated", "back-to-back"),
    epochs: int = 12,
    iters: int = 60,
    label: str | None = None,
) -> Run:
    """A complete sweep on a node of that kind, in results/HOST-SEED."""
    cases = [
        make_case(op, nbytes, mode, nranks=NRANKS)
        for op in ops
        for mode in modes
        for nbytes in sizes
        if nbytes >= 4 * NRANKS or op in ("all_reduce", "broadcast")
    ]
    plan = Plan(
        cases=tuple(PlannedCase(case, "planned", None, 4 * case.nbytes) for case in cases),
        arms=(Arm("nccl2", "nccl2"),),
        base_arm="nccl2",
        nranks=NRANKS,
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
        seed=1,
    )
    meta = make_meta(plan, label or host, 1)
    meta["created"] = f"2026-11-{10 + seed % 20}T08:00:00Z"
    meta["arms"]["nccl2"] |= {"implementation": "ProcessGroupNCCL2, nccl2", "device": "cuda"}
    meta["environment"] = node_environment(node, host)
    run = Run(folder=Path(f"results/{host}-{seed}"), meta=meta, plan=plan)
    generator = np.random.default_rng(seed)
    levels = np.exp(generator.normal(0, 0.008, epochs))  # of fresh groups, shared by all that they run
    launch = np.exp(generator.normal(0, 0.01))
    for case in cases:
        time_us = launch * node_time_us(node, case.op, case.nbytes, case.mode)
        run.units[case.key, "nccl2"] = [
            _unit(generator, case.key, case.mode, epoch, time_us * level, iters // epochs)
            for epoch, level in enumerate(levels)
        ]
    return run


def node_time_us(node: Node, op: str, nbytes: int, mode: str = "back-to-back") -> float:
    """The true time of one operation."""
    factor = COLLECTIVES[op].busbw_factor(NRANKS)
    is_first = nbytes < node.switch_bytes
    latency_us = node.latency_us if is_first else node.later_us
    if op != "all_reduce":
        latency_us *= 0.8
    if mode == "isolated":
        latency_us += 6.0
    rate_GBs = node.first_GBs if is_first else node.busbw_GBs
    return latency_us + nbytes * factor / rate_GBs / 1e3


def node_environment(node: Node, host: str) -> dict[str, Any]:
    """Of all ranks on one host, as the environment is kept: what is common apart."""
    return {
        "hosts": [
            {
                "name": host,
                "boot_id": f"boot-of-{host}",
                **{key: value for key, value in node.host.items() if key != "nccl"},
                "memory_bytes": 2_000_000_000_000,
                "topology": {
                    "gpu_links": [
                        " ".join("X" if row == column else "NV18" for column in range(NRANKS))
                        for row in range(NRANKS)
                    ],
                    "nics": [
                        {
                            "name": f"mlx5_{index}/1",
                            "rdma": True,
                            "link_layer": "InfiniBand",
                            "state": "ACTIVE",
                            "rate_Gbs": 400,
                        }
                        for index in range(NRANKS)
                    ],
                },
            }
        ],
        "common": {
            "ncclbench": "0.1.0",
            "torch": "2.15.0",
            "cuda": "13.0",
            "nccl": node.host["nccl"],
            "gpu": dict(node.gpu),
            "variables": {"NCCL_DEBUG": "WARN"},
        },
        "ranks": [
            {
                "rank": rank,
                "host": 0,
                "local_rank": rank,
                "device": f"cuda:{rank}",
                "gpu": {"uuid": f"GPU-{host}-{rank}", "pci_bus_id": f"00000000:{rank:02X}:00.0"},
            }
            for rank in range(NRANKS)
        ],
        "differences": [],
    }


def change_gpus(run: Run, **changes: Any) -> Run:
    """Another value in what NVML tells of all GPUs of a run."""
    run.meta["environment"]["common"]["gpu"] |= changes
    return run


def _unit(generator: np.random.Generator, case: str, mode: str, epoch: int, time_us: float, n: int) -> Unit:
    k = 1 if mode == "isolated" else 16
    device_us = k * time_us * np.exp(0.01 * generator.gamma(1.0, 1.0, (NRANKS, n)))
    return Unit(
        case=case,
        arm="nccl2",
        epoch=epoch,
        attempt=0,
        k=k,
        start_us=np.arange(n) * k * time_us * 2 + generator.exponential(0.2, (NRANKS, n)),
        launch_us=np.full((NRANKS, n), 6.0),
        device_us=device_us,
        total_us=device_us + 9.0,
        visits=(n,),
        turns=(0,),
        wrong=(0,) * NRANKS,
    )


def on_nodes(
    node: Node, hosts: Sequence[str], launches: int = 1, seed: int = 0, **settings: Any
) -> list[Run]:
    """Launches on each of the hosts, which are 2 % apart."""
    runs = []
    for index, host in enumerate(hosts):
        factor = float(np.exp(np.random.default_rng(seed + index).normal(0, 0.02)))
        own = replace(node, latency_us=node.latency_us * factor, later_us=node.later_us * factor)
        runs += [
            node_run(own, host, seed=seed + 10 * index + launch, **settings) for launch in range(launches)
        ]
    return runs
