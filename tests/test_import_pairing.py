"""Imported figures beside measured ones: paired where they are the same thing, and only there."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from import_reading import V1, edited, reasons, rows_of
from import_writer import Printer, Shape
from report_fixtures import make_run

from ncclbench.compare.launches import Comparison, compare_sides
from ncclbench.compare.sides import Side
from ncclbench.errors import RequestError
from ncclbench.importing import read_file
from ncclbench.importing.assemble import assemble, write_run
from ncclbench.stats.rows import run_rows
from ncclbench.store.folder import RunFolder
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

SIZES = (1 << 14, 1 << 20, 1 << 26)
OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "scatter": "scatter",
    "gather": "gather",
}


def log(program: str, command: str = "") -> str:
    printer = Printer(program, 8, Shape(version="2.17.4"), random.Random(1))
    return command + printer.whole(list(SIZES))


def imported(tmp_path: Path, text: str) -> Run:
    file = tmp_path / "x.log"
    file.write_text(text)
    with RunFolder.create(tmp_path / "run") as folder:
        write_run(
            folder, assemble([read_file(file)]), command=["ncclbench"], label=None, created=datetime.now(UTC)
        )
    return load_run(tmp_path / "run")


def measured(op: str) -> Run:
    return make_run(ops=[op], sizes=SIZES, modes=["back-to-back"], nranks=8)


def compared(base: Run, new: Run) -> Comparison:
    return compare_sides(Side([base], None, "base"), Side([new], None, "new"))


@pytest.mark.parametrize("program", OPS)
def test_every_collective_that_both_have_is_paired(program: str, tmp_path: Path) -> None:
    op = OPS[program]
    rows = compared(imported(tmp_path, log(program)), measured(op)).rows
    assert sorted((row["op"], row["nbytes"]) for row in rows) == [(op, size) for size in SIZES]


@pytest.mark.parametrize(
    ("arguments", "over"),
    [
        ("-b 16K -a 3", "max"),
        ("-a3 -b 16K", "max"),
        ("--average 0", "rank 0"),
        ("--average=2 -g 1", "min"),
        ("-a 1", "mean"),
        ("-b 16K", "mean"),
        ("-b 16K -a 2 -a 1", "mean"),
        ("-b 16K \\\n  -e 64M -a 3", "max"),
    ],
)
def test_what_is_printed_of_the_ranks_is_read_from_the_command(
    arguments: str, over: str, tmp_path: Path
) -> None:
    # Options of the launcher are not the test's.
    command = f"+ mpirun -np 8 -a 3 ./build/all_reduce_perf {arguments}\n"
    run = imported(tmp_path, log("all_reduce", command))
    rows = run_rows(run)
    assert {row["over_ranks"] for row in rows} == {over}
    for row in rows:
        assert row["median_us"] > 0
        assert (row["mean_rank_us"] is None) == (over != "mean")
    told = [each["reason"] for each in run.meta["imported"]["files"][0]["problems"]]
    assert any("not their mean" in reason for reason in told) == (over != "mean")


def test_the_slowest_rank_is_not_paired_with_a_mean(tmp_path: Path) -> None:
    run = imported(tmp_path, log("all_reduce", "./all_reduce_perf -a 3\n") + log("all_gather"))
    with pytest.raises(RequestError, match=r"BASE|NEW"):
        compared(run, measured("all_reduce"))


def test_each_test_of_a_script_has_its_own_command(tmp_path: Path) -> None:
    script = "./all_reduce_perf -a 3 && ./all_gather_perf -b 8\n"
    run = imported(tmp_path, script + log("all_reduce") + log("all_gather"))
    assert {(row.op, row.over_ranks) for row in run.printed} == {
        ("all_reduce", "max"),
        ("all_gather", "mean"),
    }
    again = "./all_reduce_perf -a 3\n" + log("all_reduce") + "./all_reduce_perf\n" + log("all_reduce")
    file = tmp_path / "again.log"
    file.write_text(again)
    assert [{row.over_ranks for row in section.rows} for section in read_file(file).sections] == [
        {"max"},
        {"mean"},
    ]


def test_arguments_in_json_say_so_too(tmp_path: Path) -> None:
    arguments = json.loads(V1.read_text())["args"]
    assert "-a" not in arguments
    text = V1.read_text()
    start = text.index('"args":[') + len('"args":[')
    end = text.index("]", start)
    file = edited(tmp_path, V1, (text[start:end], text[start:end] + ', "-a", "0"'))
    reading = read_file(file)
    assert {row.over_ranks for row in rows_of(reading)} == {"rank 0"}
    assert "rank 0 over the ranks" in reasons(reading)
