"""On what imported figures were measured: told by each invocation for itself, and never across machines."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from import_reading import V3
from import_writer import Printer, Shape

from ncclbench.hardware.machine import machine_of
from ncclbench.importing import read_file
from ncclbench.importing.assemble import Assembled, assemble, write_run
from ncclbench.store.folder import RunFolder
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

SIZES = [1 << power for power in range(10, 28)]
H100, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA B200"


def log(
    op: str = "all_reduce",
    nranks: int = 8,
    sizes: list[int] = SIZES,
    gpu: str = H100,
    host: str = "host",
    devices: bool = True,
    seed: int = 1,
) -> str:
    printer = Printer(op, nranks, Shape(version="2.17.4"), random.Random(seed))
    return printer.whole(sizes, devices=devices).replace(H100, gpu).replace("host-", f"{host}-")


def assembled(tmp_path: Path, *texts: str) -> Assembled:
    readings = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.log"
        file.write_text(text)
        readings.append(read_file(file))
    return assemble(readings)


def run_of(folder: Path, found: Assembled) -> Run:
    with RunFolder.create(folder) as run:
        write_run(run, found, command=["ncclbench"], label=None, created=datetime.now(UTC))
    return load_run(folder)


def arms(found: Assembled) -> list[list[str]]:
    """Of each file the arms that hold its rows."""
    return [sorted({row.arm for row in found.rows if row.file == file}) for file in range(len(found.files))]


def test_each_invocation_in_a_file_has_its_own_machine(tmp_path: Path) -> None:
    text = log() + log(nranks=16, devices=False) + log(nranks=16, gpu=B200, host="other")
    found = assembled(tmp_path, text)
    told = [(each["gpu"], each["nhosts"], each["nranks"]) for each in found.files[0]["sections"]]
    assert told == [(H100, 1, 8), (None, None, 16), (B200, 2, 16)]
    assert (found.files[0]["gpu"], found.files[0]["nhosts"], found.environment) == (None, None, None)
    run = run_of(tmp_path / "run", found)
    machine = machine_of(run)
    hosts = [
        machine.under({"file": row.file, "section": row.section}).hosts for row in run.printed if row.in_place
    ]
    assert hosts == [1] * len(SIZES) + [None] * len(SIZES) + [2] * len(SIZES)


def test_a_list_that_was_cut_tells_no_hosts(tmp_path: Path) -> None:
    lines = [line for line in log(nranks=16).splitlines() if "on     host-1" not in line]
    found = assembled(tmp_path, "\n".join(lines))
    (section,) = found.files[0]["sections"]
    assert (section["nranks"], section["devices"], section["nhosts"]) == (16, 8, None)
    assert section["gpu"] == H100
    assert found.environment is None
    machine = machine_of(run_of(tmp_path / "run", found)).under({"file": 0, "section": 0})
    assert (machine.gpu, machine.hosts, machine.ranks_per_host) == (H100, None, None)


def test_hosts_are_counted_beyond_those_that_are_named(tmp_path: Path) -> None:
    found = assembled(tmp_path, log(nranks=800))
    (section,) = found.files[0]["sections"]
    assert (section["nhosts"], section["ranks_per_host"], len(section["hosts"])) == (100, 8, 64)
    machine = machine_of(run_of(tmp_path / "run", found)).under({"file": 0, "section": 0})
    assert (machine.hosts, machine.ranks_per_host) == (100, 8)


def test_json_that_lists_one_device_of_each_process_tells_all_hosts() -> None:
    (section,) = read_file(V3).sections
    assert (len(section.devices), section.nhosts, section.ranks_per_host) == (1, 1, 8)


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": B200, "host": "other", "sizes": SIZES[9:]},
        {"gpu": B200, "sizes": SIZES[9:]},
        {"host": "other", "sizes": SIZES[9:]},
        {"gpu": B200, "host": "other", "op": "all_gather"},
        {"host": "other", "op": "all_gather"},
        # Of the same machine, as far as is told, but the same curve.
        {"sizes": SIZES[9:]},
        {"sizes": SIZES[9:], "devices": False},
    ],
)
def test_what_may_be_of_another_machine_is_another_arm(other: dict[str, object], tmp_path: Path) -> None:
    found = assembled(tmp_path, log(sizes=SIZES[:9]), log(**other))  # type: ignore[arg-type]
    assert arms(found) == [["nccl-tests"], ["nccl-tests#2"]]


def test_collectives_of_one_machine_share_an_arm(tmp_path: Path) -> None:
    found = assembled(tmp_path, log(), log("all_gather"), log("broadcast", devices=False), log())
    assert arms(found) == [["nccl-tests"], ["nccl-tests"], ["nccl-tests"], ["nccl-tests#2"]]
    assert [arm.id for arm in found.arms] == ["nccl-tests", "nccl-tests#2"]


def test_machines_stay_apart_over_many_files(tmp_path: Path) -> None:
    hopper, blackwell = {"host": "h"}, {"host": "b", "gpu": B200}
    found = assembled(
        tmp_path,
        *(log(op, **machine) for op in ("all_reduce", "all_gather") for machine in (hopper, blackwell)),  # type: ignore[arg-type]
    )
    assert arms(found) == [["nccl-tests"], ["nccl-tests#2"], ["nccl-tests"], ["nccl-tests#2"]]
