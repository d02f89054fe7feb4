"""Drills made of numbers, for tests of what is shown of them: no process was hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from report_fixtures import make_host

from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.drills import PHASES, ContractOutcome, DrillTrial
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import Run

# Milliseconds since the fault of each phase, as they are on one host with gloo; None: no such phase.
USUAL: dict[str, tuple[float | None, ...]] = {
    "reconfigure": (24.0, 31.0, 31.5, 38.0, 46.0, 1800.0, 1822.0, 1840.0),
    "rebuild": (24.0, 31.0, 31.5, 92.0, 110.0, 1800.0, 1880.0, 1905.0),
    "restart": (24.0, 30.0, None, None, None, 5600.0, 6200.0, 6400.0),
    "abort": (25.0, 20_000.0, None, None, None, None, None, None),
}


def make_trial(
    strategy: str = "reconfigure",
    number: int = 0,
    *,
    fault: str = "kill",
    factor: float = 1.0,
    **changes: Any,
) -> DrillTrial:
    """A trial that recovered, every phase ``factor`` times as long as usual."""
    usual = USUAL.get(strategy, USUAL["reconfigure"])
    phases = {
        name: None if value is None else value * factor for name, value in zip(PHASES, usual, strict=True)
    }
    whole = phases["first_good_n"] is not None
    fields: dict[str, Any] = {
        "number": number,
        "fault": fault,
        "victim": 2,
        "step": 20,
        "strategy": strategy,
        "phases_ms": phases,
        "notices_ms": {"0": phases["first_notice"], "1": phases["last_notice"]},
        "correct": True,
        "recovered": True,
        "before_GBs": 1.2 / factor,
        "during_GBs": 1.1 / factor if phases["first_good_n_minus_1"] is not None else None,
        "after_GBs": 1.18 / factor if whole else None,
        "replacement_asked_ms": 220.0 * factor if phases["first_good_n_minus_1"] is not None else None,
    }
    return DrillTrial(**{**fields, **changes})


CONTRACT = [
    ContractOutcome(
        case="reused-uuid",
        outcomes={"0": "refused: uuid 7 was already used", "1": "reconfigured", "2": "timed out"},
        seconds={"0": 0.002, "1": 0.004, "2": 10.0},
        consistent=False,
        expected="every rank is refused, since each reconfigure needs a fresh uuid",
        recovered=True,
        command="ncclbench drill --contract reused-uuid",
    ),
    ContractOutcome(
        case="stale-handle",
        outcomes={"0": "refused: not part of the new communicator", "1": "refused: not part of it"},
        seconds={"0": 0.001, "1": 0.001},
        consistent=True,
        expected="every rank is refused, and the group they have goes on",
        recovered=True,
        command="ncclbench drill --contract stale-handle",
    ),
]


def make_trials(strategies: tuple[str, ...], trials: int, fault: str = "kill") -> list[DrillTrial]:
    """Trials of each strategy that vary by some percent."""
    generator = np.random.default_rng(5)
    return [
        make_trial(strategy, number, fault=fault, factor=float(np.exp(generator.normal(0, 0.08))))
        for strategy in strategies
        for number in range(trials)
    ]


def make_drill(
    folder: Path = Path("results/drill"),
    *,
    strategies: tuple[str, ...] = ("reconfigure", "rebuild", "restart"),
    trials: int = 5,
    contract: bool = True,
    label: str | None = None,
    **meta: Any,
) -> Run:
    """A complete drill."""
    plan = unplanned((Arm("gloo", "gloo"),), 3)
    return Run(
        folder=folder,
        meta={
            "schema": 1,
            "kind": "drill",
            "ncclbench": "0.1.0",
            "label": label,
            "created": "2026-11-29T15:50:00Z",
            "command": ["ncclbench", "drill"],
            "plan": plan.to_json(),
            "asked": {"fault": "kill", "victim": 2, "step": 20, "trials": trials, "spare": "cold"},
            "status": "complete",
            "message": None,
            "environment": {
                "hosts": [make_host(0)],
                "ranks": [{"rank": rank, "host": 0, "local_rank": rank} for rank in range(3)],
            },
            "preflight": [],
            "attempts": [],
            **meta,
        },
        plan=plan,
        trials=make_trials(strategies, trials),
        contract=list(CONTRACT) if contract else [],
    )


def written(path: Path, run: Run) -> Path:
    """The drill's folder, through the real writer."""
    with RunFolder.create(path) as opened:
        opened.write_meta(run.meta)
        with opened.samples() as samples:
            samples.append(b"".join(map(encode_line, run.trials)) + b"".join(map(encode_line, run.contract)))
    return path
