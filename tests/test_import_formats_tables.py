"""PARAM's and OSU's tables: what each printed figure becomes, and what is not guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_reading import DATA, edited, read, reasons, rows_of

from ncclbench.importing import read_file

# PARAM.


def test_param_prints_the_median_over_ranks() -> None:
    reading = read("param.txt")
    first, second = reading.sections
    (row,) = first.rows
    assert (row.time_us, row.p50_us, row.min_us, row.max_us) == (50.0, 50.0, 49.0, 53.0)
    assert (row.op, row.dtype, row.nbytes, row.count) == ("all_reduce", "float32", 1048576, 262144)
    assert (row.nranks, row.nranks_from, row.mode) == (8, "header", "back-to-back")
    assert row.busbw_GBs == 36.7
    assert first.settings["time"].startswith("median over ranks")
    # Bandwidth of rank 0 as in 2021 lies within the extremes; the tag after the type is none of both.
    assert [(row.op, row.dtype, row.algbw_GBs) for row in second.rows] == [("all_gather", "bfloat16", 24.0)]


def test_param_rows_that_contradict_themselves_are_rejected() -> None:
    reading = read("param.txt")
    assert reading.rows_rejected == 3
    assert [problem.line for problem in reading.problems if "rejected" in problem.reason] == [8, 9, 10]
    assert "none of its figures is imported" in reasons(reading)


def test_the_first_param_has_neither_names_nor_ranks() -> None:
    assert {row.op for row in rows_of(read("param-first.txt"))} == {None}
    rows = rows_of(read("param-first.txt", op="all_reduce"))
    assert {(row.op, row.op_from, row.nranks, row.nranks_from) for row in rows} == {
        ("all_reduce", "option", 8, "derived")
    }


def test_blocking_param_is_isolated(tmp_path: Path) -> None:
    rows = rows_of(read_file(edited(tmp_path, DATA / "param.txt", ("args.z: 0", "args.z: 1"))))
    assert {row.mode for row in rows} == {"isolated"}


def test_param_ranks_that_the_figures_deny(tmp_path: Path) -> None:
    file = edited(tmp_path, DATA / "param.txt", ("groupSize 8", "groupSize 4"))
    reading = read_file(file)
    assert {(row.nranks, row.nranks_from) for row in reading.sections[0].rows} == {(8, "derived")}
    assert "the text tells of 4 ranks" in reasons(reading)


# OSU.


def test_osu_sizes_are_made_those_of_the_whole_buffer() -> None:
    reading = read("osu-collectives.txt")
    gather, reduce, broadcast = reading.sections
    row = gather.rows[1]
    assert (row.op, row.nbytes, row.count, row.nranks) == ("all_gather", 4 << 20, 1 << 20, 4)
    assert (row.time_us, row.min_us, row.max_us, row.mode) == (250.0, 240.0, 265.5, "isolated")
    assert row.algbw_GBs == pytest.approx((4 << 20) / 250 / 1e3)
    assert row.busbw_GBs == pytest.approx((4 << 20) / 250 / 1e3 * 3 / 4)
    assert {"nbytes", "algbw_GBs", "busbw_GBs"} <= set(row.derived)
    # Nothing tells how many ranks reduced: no bus bandwidth is made up.
    last = reduce.rows[-1]
    assert (last.op, last.nbytes, last.nranks, last.busbw_GBs) == ("all_reduce", 1 << 20, None, None)
    # How many elements were wrong is not printed, and not made up.
    assert [(row.wrong, row.failed) for row in broadcast.rows] == [(0, False), (None, True)]


def test_osu_lines_that_are_cut_or_impossible_are_rejected() -> None:
    reading = read("osu-collectives.txt")
    assert reading.rows_rejected == 2
    told = {problem.line: problem.reason for problem in reading.problems}
    assert "outside of its own minimum" in told[9]
    assert "cut or torn" in told[10]
    assert "'Allgatherv Latency'" in reasons(reading)


def test_osu_per_rank_sizes_without_ranks_are_not_guessed(tmp_path: Path) -> None:
    reading = read_file(edited(tmp_path, DATA / "osu-collectives.txt", ("-n 4", "")))
    assert reading.sections[0].rows == []
    assert "mpirun -np N" in reasons(reading)


def test_a_number_cut_within_its_decimals_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "cut.txt"
    file.write_text((DATA / "osu-pt2pt.txt").read_text().rstrip()[:-1])
    reading = read_file(file)
    assert (reading.rows_taken, reading.rows_rejected) == (3, 1)


def test_osu_point_to_point_is_two_ranks_and_no_collective() -> None:
    latency, bandwidth, both = (section.rows for section in read("osu-pt2pt.txt").sections)
    assert (latency[0].nbytes, latency[0].reason is not None) == (0, True)
    assert (latency[1].op, latency[1].time_us, latency[1].nranks) == ("osu_latency", 1.0, 2)
    (one_way,) = bandwidth
    assert (one_way.op, one_way.algbw_GBs) == ("osu_bw", pytest.approx(11.96221))
    assert one_way.time_us == pytest.approx(268435456 / 11.96221 / 1e3)
    (exchange,) = both
    # 32 MB/s are both directions: 16 in each, 8 bytes in half a microsecond.
    assert (exchange.op, exchange.algbw_GBs, exchange.time_us) == ("osu_bibw", 0.016, 0.5)
    assert {row.mode for row in (*latency, one_way, exchange)} == {None}
    assert {row.busbw_GBs for row in (*latency, one_way, exchange)} == {None}


def test_osu_on_nccl_with_percentiles() -> None:
    (section,) = read("osu-xccl.txt").sections
    (row,) = section.rows
    assert section.settings["library"] == "NCCL-CUDA"
    assert (row.nranks, row.p50_us, row.p99_us) == (8, 8950.0, 9001.0)
    assert row.busbw_GBs == pytest.approx((1 << 30) / 8955.18 / 1e3 * 14 / 8)


def test_a_file_of_two_tools_is_read_as_one_and_says_so(tmp_path: Path) -> None:
    both = tmp_path / "both.txt"
    both.write_text((DATA / "osu-pt2pt.txt").read_text() + (DATA / "param.txt").read_text())
    reading = read_file(both)
    others = {"osu": "param", "param": "osu"}
    assert f"import it again with --format {others[reading.format]}" in reasons(reading)
