"""What other tools printed, once it is a run: its rows, its page, and its place in comparisons."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from importing import make_printed, write_imported
from report_fixtures import make_run
from report_reading import figures_of

from ncclbench.compare.launches import compare_sides
from ncclbench.compare.sides import Opener, Side, has_wrong_data
from ncclbench.errors import RequestError
from ncclbench.report.build import render, render_comparison, report_of
from ncclbench.stats.imported import MEANS_ONLY
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run
from ncclbench.store.printed import Printed
from ncclbench.store.reader import load_run

SIZES = (8, 1 << 20, 1 << 30)
TIMES_US = (20.0, 26.5, 4000.0)


def printed_rows(scale: float = 1.0) -> list[Printed]:
    return [make_printed(nbytes, scale * us) for nbytes, us in zip(SIZES, TIMES_US, strict=True)]


def imported(folder: Path, scale: float = 1.0) -> Run:
    return load_run(write_imported(folder, printed_rows(scale)))


def measured(nranks: int = 8) -> Run:
    return make_run(
        ops=["all_reduce"], sizes=SIZES, modes=["isolated", "back-to-back"], nranks=nranks, label=None
    )


def sides(base: Run, new: Run) -> tuple[Side, Side]:
    return Side([base], None, "base"), Side([new], None, "new")


def test_rows_are_what_was_printed(tmp_path: Path) -> None:
    rows = run_rows(imported(tmp_path / "run"))
    assert [row["median_us"] for row in rows] == list(TIMES_US)
    assert [row["mean_rank_us"] for row in rows] == list(TIMES_US)
    assert rows[2]["algbw_GBs"] == round(SIZES[2] / TIMES_US[2] / 1000, 2)
    assert {row["clock"] for row in rows} == {"imported"}
    for key in ("n", "epochs", "ci_low_us", "ci_high_us", "p25_us", "p95_us", "fastest_us"):
        assert {row[key] for row in rows} == {None}, key


def test_bandwidth_lost_to_rounding_is_computed_and_marked(tmp_path: Path) -> None:
    tiny, large = run_rows(imported(tmp_path / "run"))[::2]
    assert tiny["algbw_GBs"] == pytest.approx(8 / 20.0 / 1000)
    assert tiny["busbw_GBs"] == pytest.approx(8 / 20.0 / 1000 * 1.75)
    assert tiny["derived"] == ["algbw_GBs", "busbw_GBs"]
    assert large["derived"] == []


def test_no_operation_is_skipped_and_wrong_data_is_wrong(tmp_path: Path) -> None:
    nothing = msgspec.structs.replace(
        make_printed(0, 1.0), time_us=None, algbw_GBs=None, busbw_GBs=None, reason="size 0: no operation"
    )
    run = load_run(write_imported(tmp_path / "run", [nothing, make_printed(1 << 20, 26.5, wrong=3)]))
    skipped, wrong = run_rows(run)
    assert (skipped["status"], skipped["reason"]) == ("skipped", "size 0: no operation")
    assert skipped["median_us"] is None
    assert (wrong["status"], wrong["wrong"]) == ("wrong", 3)
    assert has_wrong_data(run)


def test_old_formula_of_algbw_is_put_right(tmp_path: Path) -> None:
    new = make_printed(1 << 30, 4000.0, op="all_gather", redop=None, algbw_GBs=268.44, busbw_GBs=234.88)
    old = msgspec.structs.replace(new, algbw_GBs=234.88)
    for row in run_rows(load_run(write_imported(tmp_path / "run", [new, old]))):
        assert row["algbw_GBs"] == pytest.approx(268.44, abs=0.01)
        assert row["busbw_GBs"] == 234.88


def test_one_rank_has_no_bus(tmp_path: Path) -> None:
    row = make_printed(1 << 20, 26.5, nranks=1, busbw_GBs=0.0)
    assert run_rows(load_run(write_imported(tmp_path / "run", [row])))[0]["busbw_GBs"] == 0


def test_two_imports_have_ratios_and_no_verdict(tmp_path: Path) -> None:
    base, new = imported(tmp_path / "base"), imported(tmp_path / "new", 1.3)
    comparison = compare_sides(*sides(base, new))
    assert [row["ratio"] for row in comparison.rows] == pytest.approx([1.3] * 3)
    for row in comparison.rows:
        assert row["verdict"] == "unclear"
        assert (row["ci_low"], row["ci_high"], row["p_holm"]) == (None, None, None)
        assert not row["beyond_margin"]
        assert row["note"] == MEANS_ONLY


def test_a_measured_run_is_paired_by_its_back_to_back_mean(tmp_path: Path) -> None:
    ours = measured()
    comparison = compare_sides(*sides(imported(tmp_path / "base"), ours))
    rows = {row["nbytes"]: row for row in comparison.rows}
    assert set(rows) == set(SIZES)
    assert {row["mode"] for row in comparison.rows} == {"back-to-back"}
    large = next(
        units for (case, _), units in ours.units.items() if f"/{SIZES[2]}/" in case and "back-to-back" in case
    )
    mean_us = np.mean([unit.rank_time_us.mean() for unit in large])
    assert rows[SIZES[2]]["new_us"] == pytest.approx(mean_us, rel=1e-9)
    assert rows[SIZES[2]]["ratio"] == pytest.approx(mean_us / TIMES_US[2])


def test_other_numbers_of_ranks_are_never_paired(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="8 against 4 ranks"):
        compare_sides(*sides(imported(tmp_path / "base"), measured(nranks=4)))


def test_what_the_output_does_not_tell_is_named(tmp_path: Path) -> None:
    rows = [*printed_rows(), make_printed(4096, 21.0, op=None, op_from=None)]
    base = load_run(write_imported(tmp_path / "base", rows))
    comparison = compare_sides(*sides(base, imported(tmp_path / "new")))
    assert len(comparison.rows) == 3
    assert any("does not tell the operation" in entry["reason"] for entry in comparison.unpaired)


def test_uneven_splits_of_another_tool_are_other_traffic(tmp_path: Path) -> None:
    row = make_printed(1 << 20, 90.0, op="all_to_allv", redop=None, in_place=False)
    theirs = load_run(write_imported(tmp_path / "theirs", [*printed_rows(), row]))
    again = load_run(
        write_imported(tmp_path / "again", [*printed_rows(), row], created="2026-02-02T00:00:00+00:00")
    )
    assert "all_to_allv" in {entry["op"] for entry in compare_sides(*sides(theirs, again)).rows}
    ours = make_run(ops=["all_reduce", "all_to_allv"], sizes=SIZES, modes=["back-to-back"], nranks=8)
    comparison = compare_sides(*sides(theirs, ours))
    assert {entry["op"] for entry in comparison.rows} == {"all_reduce"}
    assert any("other traffic" in entry["reason"] for entry in comparison.unpaired)


def test_cycles_of_one_output_count_as_one_launch(tmp_path: Path) -> None:
    cycles = [make_printed(1 << 20, us, repeat=index) for index, us in enumerate((20.0, 45.0))]
    base = load_run(write_imported(tmp_path / "base", cycles))
    (row,) = compare_sides(*sides(base, imported(tmp_path / "new"))).rows
    assert row["base_us"] == pytest.approx(30.0)
    assert row["base_launches"] == 1


def test_two_outputs_in_one_run_are_compared_by_arm(tmp_path: Path) -> None:
    slower = [msgspec.structs.replace(row, arm="nccl-tests#2") for row in printed_rows(1.1)]
    folder = write_imported(tmp_path / "run", [*printed_rows(), *slower])
    base, new = Opener().sides([f"{folder}:nccl-tests"], [f"{folder}:nccl-tests#2"])
    assert [row["ratio"] for row in compare_sides(base, new).rows] == pytest.approx([1.1] * 3)


def test_wrong_data_has_no_ratio(tmp_path: Path) -> None:
    rows = [make_printed(1 << 20, 26.5, wrong=1)]
    base = load_run(write_imported(tmp_path / "base", rows))
    comparison = compare_sides(*sides(base, imported(tmp_path / "new")))
    assert comparison.rows[0]["ratio"] is None
    assert "wrong data" in comparison.rows[0]["note"]
    assert comparison.wrong == [str(base.folder)]


def test_statistic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="leave --statistic away"):
        compare_sides(*sides(imported(tmp_path / "a"), imported(tmp_path / "b", 1.1)), statistic="p25")


def test_copy_of_an_import_is_no_second_launch(tmp_path: Path) -> None:
    first, second = (write_imported(tmp_path / name, printed_rows()) for name in ("one", "two"))
    with pytest.raises(RequestError, match="is on both sides"):
        Opener().sides([str(first)], [str(second)])


def test_page_says_that_there_are_only_means(tmp_path: Path) -> None:
    html = render(report_of([imported(tmp_path / "run")]))
    assert "Imported: means only, no intervals." in html
    assert "95 % interval</dt>" not in html
    assert "Imported files" in html


def test_page_has_words_for_what_is_not_known(tmp_path: Path) -> None:
    row = make_printed(
        1024, 5.0, op=None, op_from=None, dtype=None, mode=None, nranks=None, nranks_from=None, in_place=None
    )
    html = render(report_of([load_run(write_imported(tmp_path / "run", [row]))]))
    assert "unknown operation" in html
    assert "unknown type" in html


def test_pages_of_both_kinds_together(tmp_path: Path) -> None:
    base = imported(tmp_path / "base")
    assert MEANS_ONLY[1:] in render(report_of([base, measured()]))
    several = Side([imported(tmp_path / "new"), imported(tmp_path / "other", 1.2)], None, "new")
    assert MEANS_ONLY in render_comparison(compare_sides(Side([measured()], None, "base"), several))


def test_curves_of_printed_bandwidths_have_no_steps_of_rounding(tmp_path: Path) -> None:
    """0.02, 0.04, 0.07 GB/s is a curve of steps; the table and the rows keep what was printed."""
    sizes = [128, 256, 512, 1 << 20]
    rows = [
        make_printed(nbytes, time_us, busbw_half_GBs=0.005)
        for nbytes, time_us in zip(sizes, (12.0, 12.1, 12.3, 40.0), strict=True)
    ]
    run = load_run(write_imported(tmp_path / "run", rows))
    (plot,) = figures_of(run)["bandwidth"].plots.values()
    (curve,) = [trace for trace in plot["back-to-back"].data if trace.get("mode") == "lines+markers"]
    exact = [
        nbytes / row.time_us / 1e3 * 1.75 for nbytes, row in zip(sizes, rows, strict=True) if row.time_us
    ]
    assert curve["y"][:3] == pytest.approx(exact[:3], rel=1e-3)
    assert curve["y"][3] == pytest.approx(rows[3].busbw_GBs, rel=1e-4)
    assert [row["busbw_GBs"] for row in run_rows(run)] == [row.busbw_GBs for row in rows]
