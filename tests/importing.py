"""Imported runs made of numbers, for tests of what is done with them after the import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.printed import Printed
from ncclbench.tables.collectives import COLLECTIVES


def make_printed(nbytes: int, time_us: float, **changed: Any) -> Printed:
    """An all_reduce of floats on 8 ranks as nccl-tests prints it."""
    factor = COLLECTIVES["all_reduce"].busbw_factor(8)
    algbw = round(nbytes / time_us / 1000, 2)
    printed = Printed(
        arm="nccl-tests",
        op="all_reduce",
        op_from="text",
        dtype="float32",
        redop="sum",
        root=None,
        nbytes=nbytes,
        count=nbytes // 4,
        in_place=True,
        mode="back-to-back",
        nranks=8,
        nranks_from="header",
        time_us=time_us,
        algbw_GBs=algbw,
        busbw_GBs=round(algbw * factor, 2),
        wrong=0,
    )
    return msgspec.structs.replace(printed, **changed)


def write_imported(folder: Path, rows: Sequence[Printed], **meta: Any) -> Path:
    """A run folder that holds the rows."""
    arms = tuple(Arm(name, name.partition("#")[0]) for name in dict.fromkeys(row.arm for row in rows))
    with RunFolder.create(folder) as run:
        run.write_meta(
            {
                "schema": 1,
                "kind": "import",
                "ncclbench": "0.1",
                "label": None,
                "created": "2026-01-02T03:04:05+00:00",
                "command": ["ncclbench", "import", "x.log"],
                "plan": unplanned(arms, max((row.nranks or 1 for row in rows), default=1)).to_json(),
                "imported": {"files": [{"file": "x.log", "format": "nccl-tests", "problems": []}]},
                "arms": {arm.id: {"implementation": "nccl-tests 2.17.9"} for arm in arms},
                "status": "complete",
                "message": None,
                **meta,
            }
        )
    (folder / "samples.jsonl").write_bytes(b"".join(encode_line(row) for row in rows))
    return folder
