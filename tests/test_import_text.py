"""What an importer of nccl-tests' text concludes: collective, ranks, contradictions, what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncclbench.importing.model import Reading
from ncclbench.importing.nccl_draft import Budget
from ncclbench.importing.nccl_tests import NCCL_TESTS, read, recognises

FIXTURES = Path(__file__).parent / "data" / "import"
HEADER = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)
# 8 ranks: busbw is 1.75 x algbw.
SMALL = "1024  256  float  sum  -1  20.00  0.05  0.09  0  21.00  0.05  0.09  0"
GOOD = "1048576  262144  float  sum  -1  50.00  20.97  36.70  0  52.00  20.16  35.29  0"
LARGE = "67108864  16777216  float  sum  -1  300.0  223.70  391.47  0  310.0  216.48  378.84  0"


def _read(tmp_path: Path, text: str, op: str | None = None, name: str = "log.txt") -> Reading:
    file = tmp_path / name
    file.write_text(text)
    return read(file, op)


def _table(*rows: str) -> str:
    return HEADER + "\n".join(rows) + "\n"


def _reasons(reading: Reading) -> str:
    return "\n".join(problem.reason for problem in reading.problems)


def _devices(nranks: int) -> str:
    return "# Using devices\n" + "".join(
        f"#  Rank {rank:2d} Group  0 Pid {rank} on node-a device {rank} [0000:{rank:02x}:00] NVIDIA H200\n"
        for rank in range(nranks)
    )


def test_a_crash_is_told_and_the_next_run_in_the_file_is_its_own() -> None:
    reading = read(FIXTURES / "nccl-tests-crashed-then-good.txt")
    crashed, good = reading.sections
    assert crashed.failure is not None
    assert "Test NCCL failure common.cu:958" in crashed.failure
    assert (crashed.missing, crashed.average_GBs) == (["footer"], None)
    assert {(row.op, row.op_from) for row in crashed.rows} == {("all_reduce", "text")}
    assert (good.failure, good.missing, good.average_fits) == (None, [], True)
    assert {(row.op, row.op_from) for row in good.rows} == {("all_gather", "text")}
    assert [line.rank for line in good.devices] == list(range(8))


def test_rccl_tests_tell_their_versions_and_cycles() -> None:
    section = read(FIXTURES / "rccl-tests-cycles.txt").sections[0]
    assert (section.tool, section.version) == ("rccl-tests", "develop:0a1b2c3")
    assert (section.library, section.runtime) == ("2.22.3-HEAD", "ROCm 6.4.2.0-120-e7d83f5")
    assert section.devices[3].pci_bus_id == "0000:35:00.0"
    assert section.devices[3].name == "AMD Instinct MI300X"
    sizes = [row.nbytes for row in section.rows if not row.in_place]
    assert sizes == [1 << 12, 1 << 16, 1 << 20, 1 << 24] * 2
    assert section.average_fits
    assert section.out_of_bounds == sum(1 for row in section.rows if row.wrong)


def test_rows_that_debug_output_broke_are_put_together_and_named() -> None:
    reading = read(FIXTURES / "nccl-tests-broken-rows.txt")
    section = reading.sections[0]
    assert (reading.rows_taken, reading.rows_rejected) == (6, 0)
    assert [row.time_us for row in section.rows[:2]] == [18.01, 31.37]
    assert {row.root for row in section.rows} == {0}
    assert section.average_fits
    assert [problem.line for problem in reading.problems] == [13, 16]
    assert section.environment == {"NCCL_IB_HCA": "mlx5_0,mlx5_1"}


def test_placeholders_give_no_rows() -> None:
    reading = read(FIXTURES / "nccl-tests-placeholders.txt")
    assert (reading.rows_taken, reading.rows_rejected) == (0, 2)
    assert [problem.line for problem in reading.problems if "placeholders" in problem.reason] == [4, 5]


def test_version_1_is_in_milliseconds_and_by_the_old_formula() -> None:
    reading = read(FIXTURES / "nccl-tests-1.0.txt")
    rows = reading.sections[0].rows
    assert {(row.op, row.op_from, row.nranks) for row in rows} == {("reduce_scatter", "derived", 8)}
    assert (rows[0].time_us, rows[0].algbw_GBs, rows[0].busbw_GBs) == (pytest.approx(43.0), 21.44, 21.44)
    assert rows[0].max_error == 1e-6
    assert "before June 2020" in _reasons(reading)
    assert reading.sections[0].devices[0].name == "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("50.00", "58.00", "by size over time"),
        ("20.97", "29.97", "by size over time"),
        ("36.70", "26.70", "1.75 x algbw"),
        ("1048576", "1848576", "by size over time"),
        ("0  52.00", "0.5  52.00", "count of wrong elements"),
        ("-1 ", "-7 ", "no root"),
        ("50.00", "inf", "no time"),
        ("20.97", "inf", "no bandwidth"),
        ("50.00", "50.0O", "no time"),
        ("50.00  20.97", "50.00", "cut short"),
        ("sum ", "sum sum ", "14 columns"),
    ],
)
def test_a_row_that_contradicts_itself_is_rejected_with_its_line(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    assert old in GOOD
    reading = _read(tmp_path, _table(SMALL, GOOD.replace(old, new, 1), LARGE))
    assert (reading.rows_taken, reading.rows_rejected) == (2, 1)
    told = [problem for problem in reading.problems if "rejected" in problem.reason]
    assert [problem.line for problem in told] == [3]
    assert reason in told[0].reason
    assert {row.nranks for row in reading.sections[0].rows} == {8}


def test_figures_within_a_percent_but_beyond_their_rounding_are_named(tmp_path: Path) -> None:
    reading = _read(tmp_path, _table(SMALL, GOOD.replace("36.70", "36.80"), LARGE))
    assert reading.rows_taken == 3
    assert [problem.line for problem in reading.problems if "typed again" in problem.reason] == [3]
    assert not _read(tmp_path, _table(SMALL, GOOD, LARGE)).problems[1:]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("262144", "262145", "count 262145"),
        ("float", "half", "count 262144 x 2 bytes"),
        ("float", "flyat", "'flyat' is not known"),
        ("sum", "sun", "'sun' is not known"),
        ("50.00", "50", "lost digits"),
    ],
)
def test_what_does_not_make_a_row_false_is_kept_and_named(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    reading = _read(tmp_path, _table(SMALL, GOOD.replace(old, new), LARGE))
    assert reading.rows_taken == 3
    assert [problem.line for problem in reading.problems if reason in problem.reason] == [3]


def test_size_0_is_no_operation(tmp_path: Path) -> None:
    row = "0  0  float  sum  -1  0.25  0.00  0.00  0  0.31  0.00  0.00  0"
    reading = _read(tmp_path, _table(row, GOOD, LARGE))
    first = reading.sections[0].rows[0]
    assert (first.nbytes, first.time_us, first.reason) == (0, None, "size 0: no operation")
    assert (reading.rows_taken, reading.rows_rejected) == (3, 0)
    broken = _read(tmp_path, _table(row.replace("0.25  0.00", "0.25  7.00"), GOOD, LARGE))
    assert broken.rows_rejected == 1


def test_a_time_shorter_than_its_digits_is_none_and_infinite_bandwidth_no_number(tmp_path: Path) -> None:
    row = "1024  256  float  sum  -1  0.00  inf  nan  0  0.01  102.40  179.20  0"
    reading = _read(tmp_path, _table(row, GOOD, LARGE))
    first, second = reading.sections[0].rows[:2]
    assert (first.time_us, first.algbw_GBs, first.busbw_GBs) == (None, None, None)
    assert first.reason is not None
    assert second.time_us == 0.01


def test_ranks_come_from_devices_where_numbers_allow_them(tmp_path: Path) -> None:
    told = _read(tmp_path, _devices(8) + _table(GOOD, LARGE)).sections[0]
    assert {(row.nranks, row.nranks_from) for row in told.rows} == {(8, "header")}
    contradicted = _read(tmp_path, _devices(6) + _table(GOOD, LARGE))
    assert {(row.nranks, row.nranks_from) for row in contradicted.sections[0].rows} == {(8, "derived")}
    assert "devices up to rank 5 are listed, but busbw/algbw is that of 8 ranks" in _reasons(contradicted)


def test_gaps_in_the_device_list_are_named(tmp_path: Path) -> None:
    lines = _devices(8).splitlines(keepends=True)
    reading = _read(tmp_path, lines[0] + lines[1] + lines[8] + _table(GOOD, LARGE))
    assert {row.nranks for row in reading.sections[0].rows} == {8}
    assert "2 of 8 devices are listed" in _reasons(reading)


def test_many_ranks_are_not_guessed_from_digits_that_do_not_tell(tmp_path: Path) -> None:
    # 1440 ranks: 1.99861; two digits leave hundreds to thousands.
    row = "536870912  134217728  float  sum  -1  7108.4  75.53  150.95  0  7145.8  75.13  150.16  0"
    reading = _read(tmp_path, _table(row))
    assert {(found.nranks, found.nranks_from) for found in reading.sections[0].rows} == {(None, None)}
    assert "busbw/algbw leaves" in _reasons(reading)


def test_ranks_of_an_op_whose_factor_is_1_stay_unknown_without_devices(tmp_path: Path) -> None:
    row = "1048576  262144  float  none  3  50.00  20.97  20.97  0  52.00  20.16  20.16  0"
    section = _read(tmp_path, _table(row)).sections[0]
    assert {(found.op, found.nranks, found.root) for found in section.rows} == {("broadcast", None, 3)}


def test_rows_of_two_runs_in_one_table_leave_the_ranks_open(tmp_path: Path) -> None:
    # 1.75 on 8 ranks, 1.875 on 16.
    other = "4194304  1048576  float  sum  -1  80.00  52.43  98.30  0  81.00  51.78  97.09  0"
    reading = _read(tmp_path, _table(GOOD, other))
    assert {row.nranks for row in reading.sections[0].rows} == {None}
    assert "several runs are mixed" in _reasons(reading)


def test_the_commands_op_is_believed_only_where_the_rows_can_be_it(tmp_path: Path) -> None:
    table = _table(SMALL, GOOD, LARGE)
    named = _read(tmp_path, "$ ./build/all_reduce_perf -b 1K -e 64M -f 64 -g 8\n" + table).sections[0]
    assert {(row.op, row.op_from) for row in named.rows} == {("all_reduce", "text")}
    other = _read(tmp_path, "$ ./build/all_gather_perf -b 1K -e 64M -f 64 -g 8\n" + table)
    assert {(row.op, row.op_from) for row in other.sections[0].rows} == {("all_reduce", "derived")}
    assert "a command before the table runs all_gather" in _reasons(other)


def test_a_text_that_contradicts_its_own_rows_gives_none(tmp_path: Path) -> None:
    reading = _read(tmp_path, "# Collective test starting: all_gather_perf\n" + _table(GOOD, LARGE))
    assert (reading.rows_taken, reading.rows_rejected) == (0, 2)
    assert "the text says all_gather, the rows say otherwise" in _reasons(reading)


def test_graphs_and_waiting_for_each_call_are_no_back_to_back_rows(tmp_path: Path) -> None:
    settings = "# nThread 1 nGpus 8 minBytes 1024 step: 64(factor) warmup iters: 5 iters: 20 agg iters: 1 "
    plain = settings + "validation: 1 graph: 0\n"
    table = _table(SMALL, GOOD, LARGE)
    modes = [
        {row.mode for row in _read(tmp_path, text + table).sections[0].rows}
        for text in (
            plain,
            settings + "validation: 1 graph: 4\n",
            plain + "# Blocking Enabled: wait for completion and barrier after each collective \n",
        )
    ]
    assert modes == [{"back-to-back"}, {"graph"}, {None}]
    section = _read(tmp_path, plain + table).sections[0]
    assert section.settings["warmup iters"] == "5"
    assert section.settings["iters"] == "20"
    assert section.settings["step"] == "64(factor)"


def test_the_footer_is_held_against_the_rows(tmp_path: Path) -> None:
    rows = (SMALL, GOOD, LARGE)
    mean = (0.09 + 0.09 + 36.70 + 35.29 + 391.47 + 378.84) / 6
    footer = "# Out of bounds values : {} OK\n# Avg bus bandwidth    : {:g} \n"
    fits = _read(tmp_path, _table(*rows) + footer.format(0, mean))
    assert (fits.sections[0].average_fits, fits.sections[0].average_GBs) == (
        True,
        pytest.approx(mean, rel=1e-5),
    )
    missing = _read(tmp_path, _table(*rows[1:]) + footer.format(0, mean))
    assert missing.sections[0].average_fits is False
    assert "rows are missing or changed" in _reasons(missing)
    wrong = _read(tmp_path, _table(*rows) + footer.format(3, mean))
    assert "the footer counts 3 measurements with wrong values, the rows 0" in _reasons(wrong)


def test_rows_with_wrong_elements_stay_with_their_count(tmp_path: Path) -> None:
    bad = GOOD.replace("36.70  0", "36.70  1e+06")
    section = _read(tmp_path, _table(SMALL, bad, LARGE)).sections[0]
    assert [row.wrong for row in section.rows] == [0, 0, 1_000_000, 0, 0, 0]


def test_rows_left_out_by_hand_are_told_missing(tmp_path: Path) -> None:
    section = _read(tmp_path, _table(SMALL, "   ...", LARGE)).sections[0]
    assert "rows" in section.missing
    assert "rows" not in _read(tmp_path, _table(SMALL, GOOD, LARGE)).sections[0].missing


def test_a_table_between_other_output_is_found_and_secrets_are_left_out(tmp_path: Path) -> None:
    command = "+ mpirun -np 8 -x NCCL_ALGO=Ring -x NCCL_SECRET_KEY=abc ./all_reduce_perf -b 1K\n"
    reading = _read(tmp_path, command + "noise 1 2 3 4 5 6 7 8 9 10\n" * 100 + _table(SMALL, GOOD, LARGE))
    assert (reading.rows_taken, reading.rows_rejected) == (3, 0)
    assert reading.sections[0].environment == {"NCCL_ALGO": "Ring", "NCCL_SECRET_KEY": "(not recorded)"}


def test_remarks_beside_rows_and_markdown_tables_change_nothing(tmp_path: Path) -> None:
    expected = [row.time_us for row in _read(tmp_path, _table(SMALL, GOOD, LARGE)).sections[0].rows]
    remarked = _read(tmp_path, _table(SMALL, GOOD + "   <-- slow?", LARGE))
    markdown = "\n".join("| " + " | ".join(line.split()) + " |" for line in (HEADER[1:], SMALL, GOOD, LARGE))
    for reading in (remarked, _read(tmp_path, markdown)):
        assert reading.rows_rejected == 0
        assert [row.time_us for row in reading.sections[0].rows] == expected


def test_a_table_that_lost_a_column_is_not_taken_for_an_older_one(tmp_path: Path) -> None:
    rows = [row.replace("-1  ", "") for row in (SMALL, GOOD, LARGE)]
    assert {len(row.split()) for row in rows} == {12}
    for text in (_table(*rows), "\n".join(rows)):
        reading = _read(tmp_path, text)
        assert (reading.rows_taken, reading.rows_rejected) == (0, 3)


def test_many_problems_of_a_kind_are_counted_and_not_listed(tmp_path: Path) -> None:
    reading = _read(tmp_path, _table(GOOD, *[GOOD.replace("50.00", "90.00")] * 500))
    assert reading.rows_rejected == 500
    assert len(reading.problems) < 30
    assert "480 more lines" in _reasons(reading)


def test_a_hundred_thousand_rows_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclbench.importing.nccl_streams.Budget", lambda: Budget(rows=50))
    reading = _read(tmp_path, _table(*[GOOD] * 80))
    assert reading.rows_taken == 50
    assert "more rows than are read" in _reasons(reading)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("# nccl-tests version 2.18.0 nccl-headers=1 nccl-library=2\n", 90),
        (HEADER, 90),
        (HEADER.replace("#", ""), 90),
        ("# Avg bus bandwidth    : 1.5\n", 90),
        (GOOD, 60),
        ("node-a:1:1 [0] NCCL INFO Bootstrap\n", 30),
    ],
)
def test_its_own_logs_are_recognised(text: str, least: int) -> None:
    assert NCCL_TESTS.recognises(text, "log.txt") >= least


@pytest.mark.parametrize(
    "text", ['{"version": "2.19", "algbw": 1, "busbw": 2}', "# OSU MPI Latency\n8 1.2\n", "hello\n", ""]
)
def test_other_files_are_not(text: str) -> None:
    assert recognises(text, "all_reduce_perf.txt") == 0
