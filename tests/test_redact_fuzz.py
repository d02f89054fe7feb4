"""Every text field of a run holds names: none is in the page, in its packed data or in the document."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import SMALL, make_calibration, make_launches, make_run, skip
from report_reading import drawing_of

from ncclbench.cli.output import plain
from ncclbench.compare.launches import compare_sides
from ncclbench.compare.sides import Side
from ncclbench.plan.model import Arm
from ncclbench.report.build import render, render_comparison, report_of
from ncclbench.report.redact import Redactor
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run
from ncclbench.store.printed import Printed

HOSTS = ("trn-b200-0017.hpc.example.com", "trn-b200-0018.hpc.example.com")
SECRETS = (
    *HOSTS,
    "trn-b200-0017",
    "TRN-B200-0018",
    "hpc.example.com",
    "jroe42",
    "/home/jroe42/nccl/run 1",
    "/gpfs/acme/shared/libnccl.so",
    "10.20.30.41",
    "fe80::1ff:fe23:4567:890a",
    "fe80:0000:0000:0000:506b:4b03:00c1:2234",
    "02:42:ac:11:00:02",
    "4829137",
    "GPU-3b1f2c4d-0a1b-2c3d-4e5f-60718293a4b5",
    "i-0abcdef1234567890",
    "c0ffee00c0ffee11c0ffee22c0ffee33",
    "jroe42@acme.example.com",
    "https://acme.example.com/grafana?user=jroe42",
)
# What must not be left of them, wherever it stood.
TRACES = (
    "trn-b200",
    "example.com",
    "jroe",
    "gpfs",
    "acme",
    "libnccl.so",
    "10.20.30.41",
    "fe80:",
    "506b:4b03",
    "506b4b03",
    "02:42:ac",
    "4829137",
    "3b1f2c4d",
    "0abcdef1234567890",
    "c0ffee",
    "grafana",
)
AROUND = (
    "{}",
    " {} ",
    "({})",
    "[{}]",
    "='{}'",
    '"{}"',
    "<{}>",
    "{}, ",
    "x={};",
    "{}\n",
    "\u2028{}",
    "see {}. ",
)
# What readers of a run go by.
STRUCTURE = ("plan", "schema", "kind", "status", "severity")


def seeded(value: Any, generator: random.Random, key: str = "") -> Any:
    """The same with names in every text, keys of dictionaries too."""
    if isinstance(value, str):
        names = generator.sample(SECRETS, 3)
        return " ".join([value, *(generator.choice(AROUND).format(name) for name in names)])
    if isinstance(value, list):
        return [seeded(entry, generator, key) for entry in value]
    if isinstance(value, dict):
        return {
            name: below if name in STRUCTURE else seeded(below, generator, name)
            for name, below in value.items()
        }
    return value


def seeded_run(seed: int, folder: str = "acme/jroe42/20261129-155000-trn-b200-0017") -> Run:
    generator = random.Random(seed)
    arms = ("gloo", f"gloo-{HOSTS[seed % 2]}", "gloo(10.20.30.41)")
    run = make_run(
        Path(folder), sizes=SMALL, modes=("isolated",), arms=arms, hosts=2, nranks=4, epochs=6, iters=12
    )
    meta = run.meta
    environment = meta["environment"]
    environment["hosts"][0] |= {"name": HOSTS[0], "nics": [{"port_gid": "x", "name": "mlx5_0"}], "ecc": True}
    environment["hosts"][1] |= {"name": HOSTS[1], "driver": "600.1", "serial": 4829137}
    environment["common"] = {"variables": {"SLURM_JOB_ID": "4829137", "MASTER_ADDR": "trn-b200-0017"}}
    environment["differences"] = [{"what": "driver", "values": [{"value": "x", "ranks": [0]}]}]
    meta["calibration"] = make_calibration(("all_reduce", 4096, "isolated", 0.02)) | {"schema": 1}
    meta["preflight"] = [{"severity": "warning", "ranks": [0], "what": "load", "mend": "wait"}]
    names = {key: environment["hosts"][key]["name"] for key in (0, 1)}
    arm_meta = meta.pop("arms")
    job = dict(environment["common"]["variables"])
    run.meta = seeded(meta, generator)
    run.meta["arms"] = {arm: seeded(entry, generator) for arm, entry in arm_meta.items()}
    for entry in run.meta["arms"].values():
        entry["status"] = "ok"
    for key, name in names.items():
        run.meta["environment"]["hosts"][key]["name"] = name
    run.meta["environment"]["common"]["variables"] |= job
    run.meta["command"] = ["ncclbench", *(word for name in SECRETS for word in ("--label", name))]
    skip(run, 0, seeded("too small", generator))
    run.statuses[run.plan.cases[1].case.key, arms[1]] = ("failed", seeded("it hung", generator))
    run.units.pop((run.plan.cases[1].case.key, arms[1]))
    run.problems = [seeded("torn", generator) for _ in range(3)]
    return run


def traces_in(text: str) -> list[str]:
    lowered = text.lower()
    return [trace for trace in TRACES if trace in lowered]


def searched(page: str) -> list[str]:
    """Names that are left in a page, its packed data unpacked."""
    before, _, _ = page.partition('id="drawing"')
    return traces_in(before + json.dumps(drawing_of(page), ensure_ascii=False))


def test_the_search_would_find_them() -> None:
    found = searched(render(report_of([seeded_run(0)])))
    assert set(found) >= {"trn-b200", "jroe", "10.20.30.41", "4829137", "acme"}


@pytest.mark.parametrize("seed", range(12))
def test_no_name_is_left_in_a_report(seed: int) -> None:
    runs = [seeded_run(seed), seeded_run(seed + 100, "acme/other")]
    redactor = Redactor(runs)
    page = render(report_of(redactor.runs), redactor.notice)
    assert searched(page) == []
    redactor.check([page])
    rows = [row for run in redactor.runs for row in run_rows(run)]
    document = plain([rows, *(run.meta for run in redactor.runs), *(run.problems for run in redactor.runs)])
    assert traces_in(json.dumps(document, ensure_ascii=False)) == []
    # Nothing was lost on the way.
    assert [row["status"] for row in rows] == [row["status"] for run in runs for row in run_rows(run)]


@pytest.mark.parametrize("seed", range(3))
def test_no_name_is_left_in_a_comparison(seed: int) -> None:
    generator = random.Random(seed)
    sides = []
    for name in ("monday", "tuesday"):
        launches = make_launches(name, 4, sizes=SMALL, modes=("isolated",))
        for run in launches:
            run.folder = Path(f"/home/jroe42/{name}/{run.folder.name}-trn-b200-0017")
            run.meta["environment"] = seeded(run.meta["environment"], generator)
            run.meta["environment"]["hosts"][0]["name"] = HOSTS[0]
            run.meta["environment"]["common"] = {"variables": {"SLURM_JOB_ID": "4829137"}}
            run.meta["status"] = generator.choice(("complete", "interrupted"))
            run.meta["message"] = seeded("ended", generator)
        sides.append(Side(launches, None, f"{launches[0].folder} .. {name} of jroe42"))
    redactor = Redactor([run for side in sides for run in side.runs])
    comparison = compare_sides(*(redactor.side(side) for side in sides))
    assert searched(render_comparison(comparison, notice=redactor.notice)) == []
    document = [comparison.rows, comparison.differences, comparison.notes, comparison.unpaired]
    assert traces_in(json.dumps(plain(document), ensure_ascii=False)) == []


@pytest.mark.parametrize("seed", range(3))
def test_no_name_is_left_of_an_imported_run(seed: int) -> None:
    generator = random.Random(seed)
    word = seeded("all", generator)[:100]
    run = make_run(Path("acme/log"), sizes=SMALL)
    run.meta["kind"] = "import"
    run.meta["imported"] = {
        "files": [
            seeded({"file": "acme/jroe42/log.txt", "hosts": list(HOSTS), "missing": ["footer"]}, generator)
        ]
    }
    run.meta["environment"]["hosts"][0]["name"] = HOSTS[0]
    run.meta["environment"]["common"] = {"variables": {"SLURM_JOB_ID": "4829137"}}
    run.plan = replace(run.plan, cases=(), arms=(Arm("nccl-tests", "nccl-tests"),), base_arm="nccl-tests")
    run.units, run.cold = {}, []
    run.printed = [
        Printed(
            arm="nccl-tests",
            op=word,
            op_from="text",
            dtype=word,
            redop=None,
            root=None,
            nbytes=nbytes,
            count=1,
            in_place=False,
            mode="back-to-back",
            nranks=2,
            nranks_from="header",
            time_us=10.0,
            algbw_GBs=1.0,
            busbw_GBs=1.0,
            wrong=0,
            reason=seeded("no", generator),
        )
        for nbytes in (8, 1024)
    ]
    redactor = Redactor([run])
    assert searched(render(report_of(redactor.runs), redactor.notice)) == []
    assert traces_in(json.dumps(plain(run_rows(redactor.runs[0])), ensure_ascii=False)) == []
