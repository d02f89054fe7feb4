"""Every layout of nccl-tests and rccl-tests, printed by an independent writer, comes back value by value."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from import_writer import FACTORS, PARTS, ROOTED, SIZES, UNCHECKED_IN_PLACE, Expected, Printer, Shape

from ncclbench.importing.nccl_tests import read
from ncclbench.store.printed import Printed
from ncclbench.tables.dtypes import find_dtype

OURS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
SHAPES = {
    "v2.13": Shape("2.13"),
    "v2.17.4": Shape("2.17.4"),
    "timestamps": Shape("2.17.4", timestamps=True),
    "per-iteration": Shape("2.17.4", per_iteration=True),
    "one half": Shape("2.13", one_half=True),
    "algorithms": Shape("2.13", algorithms=True),
    "unchecked": Shape("2.13", checked=False),
    "v2.0": Shape("2.0"),
    "v1.0": Shape("1.0"),
}
IN_FORMER_VERSIONS = {"1.0": {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}}


def _printer(op: str, shape: Shape, seed: int) -> Printer:
    rng = random.Random(seed)
    nranks = rng.choice([2, 3, 4, 8, 16, 72]) if op != "hypercube" else rng.choice([2, 4, 8, 16])
    dtype = rng.choice(list(SIZES)) if shape.version >= "2.13" else rng.choice(["float", "half", "double"])
    return Printer(
        op,
        nranks,
        shape,
        rng,
        dtype=dtype,
        root=rng.randrange(nranks),
        redop=rng.choice(["sum", "prod", "avg"]),
    )


def _sizes(printer: Printer) -> list[int]:
    return [1 << power for power in range(10, 31, printer.rng.choice([1, 2, 3]))]


def _same(row: Printed, expected: Expected, printer: Printer) -> None:
    assert (row.nbytes, row.count, row.in_place) == (expected.nbytes, expected.count, expected.in_place)
    assert row.dtype == find_dtype(expected.dtype).name
    assert (row.algbw_GBs, row.busbw_GBs) == (expected.algbw, expected.busbw)
    if expected.nbytes == 0:
        assert (row.time_us, row.reason) == (None, "size 0: no operation")
    elif printer.shape.cpu_time:
        assert "time_us" in row.derived
    else:
        assert row.time_us == pytest.approx(expected.time_us, rel=1e-12)
    if printer.shape.version >= "2.13":
        assert row.wrong == expected.wrong
    else:
        assert (row.wrong, row.max_error) == (None, expected.wrong)
    assert row.nranks == printer.nranks
    assert row.op == OURS.get(printer.op, printer.op)
    assert row.root == (printer.root if printer.op in ROOTED else None)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (op, name)
        for name, shape in SHAPES.items()
        for op in FACTORS
        if op in IN_FORMER_VERSIONS.get(shape.version, FACTORS)
    ],
)
def test_all_values_come_back(tmp_path: Path, op: str, name: str) -> None:
    shape = SHAPES[name]
    for seed in range(4):
        printer = _printer(op, shape, seed)
        file = tmp_path / f"{seed}.txt"
        file.write_text(printer.whole(_sizes(printer)))
        reading = read(file)
        rows = [row for section in reading.sections for row in section.rows]
        assert reading.rows_rejected == 0
        assert len(reading.sections) == 1
        assert len(rows) == len(printer.rows)
        for row, expected in zip(rows, printer.rows, strict=True):
            _same(row, expected, printer)
            assert row.op_from == "text"
            assert row.nranks_from == "header"
        assert reading.sections[0].average_fits
        assert not [problem for problem in reading.problems if "formula" not in problem.reason]


@pytest.mark.parametrize(
    "op", ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "hypercube", "reduce"]
)
def test_op_and_ranks_are_derived_where_only_the_table_is_left(tmp_path: Path, op: str) -> None:
    printer = _printer(op, Shape("2.17.4"), 5)
    printer.header()
    for size in _sizes(printer):
        printer.row(size)
    file = tmp_path / "table.txt"
    file.write_text("\n".join(printer.lines))
    rows = read(file).sections[0].rows
    assert {(row.op, row.op_from) for row in rows} == {(OURS.get(op, op), "derived")}
    if op == "reduce":  # its factor is 1 on any number of ranks
        assert {(row.nranks, row.nranks_from) for row in rows} == {(None, None)}
    else:
        assert {(row.nranks, row.nranks_from) for row in rows} == {(printer.nranks, "derived")}


@pytest.mark.parametrize("op", ["scatter", "gather"])
def test_an_op_that_another_could_be_stays_unknown_without_text(tmp_path: Path, op: str) -> None:
    printer = _printer(op, Shape("2.17.4"), 6)
    printer.header()
    for size in _sizes(printer):
        printer.row(size)
    file = tmp_path / f"{op}_perf.txt"
    file.write_text("\n".join(printer.lines))
    assert {(row.op, row.op_from) for row in read(file).sections[0].rows} == {(None, None)}
    assert {(row.op, row.op_from) for row in read(file, op).sections[0].rows} == {(op, "option")}


@pytest.mark.parametrize("version", ["2.13", "2.17.4", "2.0", "1.0"])
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_rows_without_any_header_are_read_by_what_makes_them_true(
    tmp_path: Path, op: str, version: str
) -> None:
    printer = _printer(op, Shape(version), 7)
    for size in _sizes(printer):
        printer.row(size)
    file = tmp_path / "tail.txt"
    file.write_text("\n".join(printer.lines))
    reading = read(file)
    rows = reading.sections[0].rows
    assert [row.time_us for row in rows] == pytest.approx([row.time_us for row in printer.rows])
    assert [row.busbw_GBs for row in rows] == [row.busbw for row in printer.rows]
    assert "header" in reading.sections[0].missing
    assert any("no header" in problem.reason for problem in reading.problems)


def test_a_row_cut_to_the_length_of_an_old_layout_is_rejected(tmp_path: Path) -> None:
    printer = _printer("all_reduce", Shape("2.13"), 8)
    text = printer.whole(_sizes(printer))
    lines = text.split("\n")
    place = next(number for number, line in enumerate(lines) if line.startswith("     1048576"))
    lines[place] = lines[place].rsplit(None, 1)[0]
    assert len(lines[place].split()) == 12
    file = tmp_path / "cut.txt"
    file.write_text("\n".join(lines))
    reading = read(file)
    assert reading.rows_rejected == 1
    assert [problem.line for problem in reading.problems if "cut short" in problem.reason] == [place + 1]
    assert 1048576 not in {row.nbytes for row in reading.sections[0].rows}
    # Without a header it is no row of an old table either: its time would be -1.
    file.write_text("\n".join(line for line in lines if "algbw" not in line))
    assert 1048576 not in {row.nbytes for row in read(file).sections[0].rows}


def test_cpu_time_is_not_taken_for_the_time_of_the_operation(tmp_path: Path) -> None:
    printer = _printer("all_reduce", Shape("2.17.4", cpu_time=True), 9)
    file = tmp_path / "cpu.txt"
    file.write_text(printer.whole(_sizes(printer)))
    reading = read(file)
    for row, expected in zip(reading.sections[0].rows, printer.rows, strict=True):
        _same(row, expected, printer)
        if row.time_us is not None:
            assert row.nbytes / row.time_us / 1e3 == pytest.approx(expected.algbw)
    assert any("CPU time" in problem.reason for problem in reading.problems)


def test_per_iteration_figures_are_kept(tmp_path: Path) -> None:
    printer = _printer("all_gather", Shape("2.17.4", per_iteration=True), 10)
    file = tmp_path / "iterations.txt"
    file.write_text(printer.whole(_sizes(printer)))
    for row in read(file).sections[0].rows:
        assert row.min_us is not None
        assert row.max_us is not None
        assert row.p99_us is not None
        assert row.min_us <= row.p99_us <= row.max_us


def test_old_formula_is_named_and_figures_stay(tmp_path: Path) -> None:
    printer = _printer("all_gather", Shape("1.0"), 11)
    file = tmp_path / "old.txt"
    file.write_text(printer.whole(_sizes(printer), banner=False))
    reading = read(file)
    section = reading.sections[0]
    assert reading.rows_rejected == 0
    assert any("before June 2020" in problem.reason for problem in reading.problems)
    assert {row.op for row in section.rows} == {"all_gather"}
    for row, expected in zip(section.rows, printer.rows, strict=True):
        _same(row, expected, printer)


def test_every_layout_has_an_op_of_each_kind() -> None:
    assert {"all_reduce", "broadcast"} <= set(FACTORS) - PARTS
    assert set(FACTORS) >= ROOTED | UNCHECKED_IN_PLACE
