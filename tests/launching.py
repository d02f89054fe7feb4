"""Launches to compare: made of numbers in memory, or written as a sweep writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from report_fixtures import make_run

from ncclbench.compare.launches import Comparison, compare_sides
from ncclbench.compare.sides import Side
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_unit
from ncclbench.store.model import Run

SIZE = 4096
BEFORE = (1.0, 1.01, 0.99, 1.02, 0.98)
AFTER = (1.21, 1.19, 1.2, 1.22)


def launch(seed: int, factor: float = 1.0, host: str = "node-00", **settings: Any) -> Run:
    """One launch of a few cases, ``factor`` slower than the others, on a host of that name."""
    settings = {
        "ops": ("all_reduce",),
        "sizes": (SIZE,),
        "modes": ("back-to-back",),
        "epochs": 6,
        "iters": 60,
        "epoch_spread": 0.002,
        "noise": 0.01,
        **settings,
    }
    of_arm = settings.pop("slower", {})
    slower = {arm: factor * of_arm.get(arm, 1.0) for arm in settings.get("arms", ("gloo",))}
    run = make_run(Path(f"results/{host}-{seed}"), seed=seed, slower=slower, **settings)
    run.meta["environment"]["hosts"][0]["name"] = host
    run.plan = replace(run.plan, seed=1)
    return run


def launches(factors: Sequence[float], first: int = 0, **settings: Any) -> list[Run]:
    return [launch(first + number, factor, **settings) for number, factor in enumerate(factors)]


def compared(base: list[Run], new: list[Run], **options: Any) -> Comparison:
    return compare_sides(Side(base, None, "old"), Side(new, None, "young"), **options)


def only_row(comparison: Comparison) -> dict[str, Any]:
    (row,) = comparison.rows
    return row


def with_plan(**changes: Any) -> Callable[[Run], Run]:
    """A change of a run: other values in its plan."""

    def change(run: Run) -> Run:
        run.plan = replace(run.plan, **changes)
        return run

    return change


MONDAY, TUESDAY = "2026-11-23", "2026-11-24"


def store(path: Path, created: str = f"{MONDAY}T10:00:00Z", host: str = "node-00", **settings: Any) -> Path:
    """A small run, written as a sweep writes it."""
    settings = {
        "ops": ("all_reduce",),
        "sizes": (4096, 65536),
        "modes": ("back-to-back",),
        "epochs": 6,
        "iters": 60,
        "epoch_spread": 0.004,
        "noise": 0.02,
        "label": path.name,
        **settings,
    }
    run = make_run(path, **settings)
    run.meta["created"] = created
    run.meta["environment"]["hosts"][0]["name"] = host
    with RunFolder.create(path) as folder:
        folder.write_meta(run.meta)
        with folder.samples() as samples:
            for units in run.units.values():
                samples.append(b"".join(encode_unit(unit) for unit in units))
    return path


def spoil(folder: Path) -> None:
    samples = folder / "samples.jsonl"
    samples.write_text(samples.read_text().replace('"wrong":0', '"wrong":3', 1))


def edit_meta(folder: Path, **changes: Any) -> None:
    meta = folder / "run.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | changes))


def inject(folder: Path) -> None:
    """Let a written run say that its first arm was slowed on purpose."""
    plan = json.loads((folder / "run.json").read_text())["plan"]
    arm = plan["arms"][0]["id"]
    edit_meta(folder, plan=plan | {"injection": {"arm": arm, "ranks": None, "us": 5.0, "fraction": None}})
