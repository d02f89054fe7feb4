"""What a person sees of a run: driven with made-up units, read back as text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclbench.plan.arms import parse_arms
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Case, Plan
from ncclbench.store.model import Stop, Unit
from ncclbench.terminal.progress import Lines
from ncclbench.terminal.show import TerminalListener, finding_lines, show_conclusion
from ncclbench.terminal.table import Table
from ncclbench.units import rank_ranges

ENVIRONMENT: dict[str, Any] = {"hosts": [{"name": "node0"}], "ranks": []}
FOLDER = Path("results/a-run")


def plan_of(backends: str = "gloo", **selection: Any) -> Plan:
    chosen = {"sizes": (1024, 2048), "modes": ("isolated",), **selection}
    arms = parse_arms(backends, None, "cpu")
    return build_plan(
        Selection(**chosen), arms, nranks=2, local_ranks=2, device="cpu", method=Method(epochs=2, iters=10)
    )


def unit(case: Case, arm: str, epoch: int, time_us: float = 100.0, wrong: int = 0) -> Unit:
    times = np.full((2, 5), time_us) + np.arange(5) + epoch
    return Unit(
        case=case.key,
        arm=arm,
        epoch=epoch,
        attempt=0,
        k=1,
        start_us=np.zeros((2, 5)),
        launch_us=times / 2,
        device_us=None,
        total_us=times,
        visits=(5,),
        turns=(0,),
        wrong=(0, wrong),
    )


def measure(
    listener: TerminalListener,
    plan: Plan,
    epochs: range | None = None,
    time_us: Callable[[Case], float] = lambda case: 100.0,
) -> None:
    for epoch in epochs or range(plan.epochs):
        for case in plan.planned:
            units = [unit(case, arm.id, epoch, time_us(case)) for arm in plan.arms]
            listener.measured(case, epoch, units, 0.1)
            if epoch == plan.epochs - 1:
                listener.stopped(case, Stop(plan.epochs, "epochs", None))


def rows_of(text: str) -> list[list[str]]:
    """The table's rows, split into cells."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


class TestTable:
    def test_a_row_is_shown_once_its_last_epoch_is_measured(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of()
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        measure(listener, plan, range(1))
        assert rows_of(capsys.readouterr().out) == []
        listener.measured(plan.planned[0], 1, [unit(plan.planned[0], "gloo", 1)], 0.1)
        listener.stopped(plan.planned[0], Stop(2, "epochs", None))
        (row,) = rows_of(capsys.readouterr().out)
        assert row[:6] == ["1024", "256", "float32", "sum", "-1", "102.50"]

    def test_columns_are_those_of_nccl_tests(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of(sizes=(1 << 20,))
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        measure(listener, plan, time_us=lambda case: 998.0)
        listener.ended()
        text = capsys.readouterr().out
        header = next(line for line in text.splitlines() if "busbw" in line)
        assert header.strip("# ").split() == (
            ["size", "count", "type", "redop", "root", "time", "95%", "interval", "algbw", "busbw", "#wrong"]
        )
        (row,) = rows_of(text)
        # 1 MiB in a median of 1000.5 us is 1.05 GB/s; at two ranks an all_reduce's busbw is the same.
        assert row[5] == "1000.5"
        assert row[-3:] == ["1.05", "1.05", "0"]

    def test_lines_have_one_width_and_fit_a_wide_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of(
            "gloo,nccl-legacy-eager", dtypes=("float8_e4m3fnuz",), ops=("all_gather",), sizes=(64, 1 << 26)
        )
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        measure(listener, plan, time_us=lambda case: 3e5 if case.nbytes > 1000 else 9.5)
        lines = capsys.readouterr().out.splitlines()
        rows = [line for line in lines if line and not line.startswith("#")]
        assert len(rows) == 4
        assert len({len(row) for row in rows}) == 1
        assert len(rows[0]) <= 130
        (titles,) = [line for line in lines if "busbw" in line]
        assert len(titles) == len(rows[0])

    def test_one_arm_needs_no_column_several_have_one(self) -> None:
        assert " arm " not in Table(plan_of()).header()[0]
        assert " arm " in Table(plan_of("gloo,gloo")).header()[0]

    def test_arms_stand_below_each_other(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of("gloo,gloo")
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        measure(listener, plan)
        assert [(row[0], row[5]) for row in rows_of(capsys.readouterr().out)] == [
            ("1024", "gloo"),
            ("1024", "gloo#2"),
            ("2048", "gloo"),
            ("2048", "gloo#2"),
        ]

    def test_a_heading_per_operation_type_and_mode(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of(
            ops=("all_reduce", "broadcast"), redops=("sum", "max"), modes=("isolated", "back-to-back")
        )
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        measure(listener, plan)
        text = capsys.readouterr().out
        headings = re.findall(r"^# (\w+ float32 [\w-]+) \(in place\)", text, re.MULTILINE)
        # In the order of the plan, where a heading comes back when the operator changes.
        assert headings[-2:] == ["broadcast float32 isolated", "broadcast float32 back-to-back"]
        assert "all_reduce float32 isolated" in headings
        assert len(rows_of(text)) == len(plan.planned)

    def test_wrong_data_is_marked_and_has_no_bandwidth(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of(sizes=(1024,))
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        for epoch in range(2):
            listener.measured(plan.planned[0], epoch, [unit(plan.planned[0], "gloo", epoch, wrong=3)], 0.1)
        listener.ended()
        (row,) = rows_of(capsys.readouterr().out)
        assert row[-5:] == ["-", "-", "6", "WRONG", "DATA"]

    def test_ranks_that_share_a_gpu_have_no_bandwidth(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = build_plan(
            Selection(sizes=(1024,), modes=("isolated",)),
            parse_arms("gloo", None, "cpu"),
            nranks=2,
            local_ranks=2,
            device="cpu",
            method=Method(epochs=2, share_gpu=True),
        )
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        measure(listener, plan)
        text = capsys.readouterr().out
        assert "ranks share a GPU: no bandwidth figures" in text
        (row,) = rows_of(text)
        assert row[-3:] == ["-", "-", "0"]

    def test_nothing_is_coloured_where_no_terminal_is(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of()
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [finding("error", [0], "broken")])
        for epoch in range(2):
            listener.measured(plan.planned[0], epoch, [unit(plan.planned[0], "gloo", epoch, wrong=1)], 0.1)
        listener.ended()
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err

    def test_json_leaves_standard_output_to_the_document(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of()
        listener = TerminalListener(as_json=True)
        listener.started(FOLDER, plan, ENVIRONMENT, [finding("warning", [0], "slow")])
        measure(listener, plan)
        listener.note("something")
        listener.ended()
        show_conclusion([], [], FOLDER / "report.html", as_json=True)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "slow" in captured.err
        assert "something" in captured.err
        assert "report.html" in captured.err


class TestEnding:
    def test_a_precision_is_answered(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = replace(plan_of(), precision=0.02, time_budget_s=5.0)
        first, second = plan.planned
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        for case, stop in ((second, Stop(31, "budget", 0.043)), (first, Stop(8, "precision", 0.01))):
            listener.measured(case, 0, [unit(case, "gloo", 0)], 0.1)
            listener.stopped(case, stop)
        listener.ended()
        text = capsys.readouterr().out
        # In the plan's order, whichever case was ready first.
        assert [int(row[0]) for row in rows_of(text)] == [first.nbytes, second.nbytes]
        assert "each until its interval is within 2.00% or 5.0 s are spent" in text
        assert "# within 2.00%: 1 of 2 cases; 1 ran out of time, the widest interval 4.30% either way" in text

    def test_an_early_end_shows_what_was_measured(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of()
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        listener.measured(plan.planned[0], 0, [unit(plan.planned[0], "gloo", 0)], 0.1)
        listener.ended()
        (row,) = rows_of(capsys.readouterr().out)
        # One epoch has no interval.
        assert row[:1] + row[5:7] == ["1024", "102.00", "-"]

    def test_an_end_before_the_start_shows_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        TerminalListener().ended()
        assert capsys.readouterr() == ("", "")

    def test_a_resumed_run_shows_old_and_new_rows(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = plan_of()
        first, second = plan.planned
        earlier = {
            (first.key, "gloo"): [unit(first, "gloo", 0, 300.0), unit(first, "gloo", 1, 300.0)],
            (second.key, "gloo"): [unit(second, "gloo", 0, 300.0)],
        }
        listener = TerminalListener(earlier=earlier)
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        assert [row[0] for row in rows_of(capsys.readouterr().out)] == ["1024"]
        listener.measured(second, 1, [unit(second, "gloo", 1, 100.0)], 0.1)
        listener.ended()
        captured = capsys.readouterr()
        (row,) = rows_of(captured.out)
        # Median over both epochs, the earlier attempt's among them.
        assert float(row[5]) == pytest.approx((302 + 103) / 2)
        assert "epoch 2 of 2 done" in captured.err

    def test_hundreds_of_skipped_cases_are_one_line_per_reason(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(
            ops=("all_reduce", "all_gather"),
            redops=("sum", "band"),
            sizes=tuple(4 * n for n in range(1, 301)),
            dtypes=("float32", "float64"),
        )
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        listener.ended()
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# skipped")]
        assert len(lines) == 3
        assert "# skipped: 300 cases of all_reduce float32: band is not defined on float32" in lines
        assert any("all_gather" in line and line.endswith("below one element per rank") for line in lines)

    def test_an_arm_that_is_not_there_is_told_at_once_and_counted_at_the_end(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of("gloo,nccl2")
        listener = TerminalListener()
        listener.started(FOLDER, plan, ENVIRONMENT, [])
        for case in plan.planned:
            listener.settled(case.key, "nccl2", "unavailable", "needs torch >= 2.15")
        assert capsys.readouterr().err == "ncclbench: nccl2 unavailable: needs torch >= 2.15\n"
        for epoch in range(2):
            for case in plan.planned:
                listener.measured(case, epoch, [unit(case, "gloo", epoch)], 0.1)
        listener.ended()
        captured = capsys.readouterr()
        assert len(rows_of(captured.out)) == 2
        assert "# unavailable: 2 cases of all_reduce float32 on nccl2: needs torch >= 2.15" in captured.out

    def test_the_last_lines_name_wrong_rows_and_the_report(self, capsys: pytest.CaptureFixture[str]) -> None:
        row = {"op": "all_reduce", "dtype": "float16", "redop": "sum", "nbytes": 1 << 20, "mode": "isolated"}
        rows = [{**row, "arm": "gloo", "wrong": wrong} for wrong in (0, 7, None)]
        show_conclusion(rows, [], FOLDER / "report.html")
        assert capsys.readouterr().out.splitlines() == [
            "WRONG DATA in 1 row: their times mean nothing",
            "  all_reduce float16 sum 1M isolated on gloo: 7 wrong elements",
            "report: results/a-run/report.html",
        ]


def finding(severity: str, ranks: list[int], what: str, mend: str | None = None) -> dict[str, Any]:
    return {"severity": severity, "ranks": ranks, "what": what, "mend": mend}


class TestFindings:
    def test_errors_come_first_and_equal_ones_are_one_line(self) -> None:
        found = [
            *(finding("warning", [rank], "NCCL_DEBUG=INFO", "unset it") for rank in range(8)),
            finding("error", [3], "two ranks on one GPU", "use --share-gpu"),
        ]
        assert finding_lines(found, None) == [
            "error: two ranks on one GPU (rank 3): use --share-gpu",
            "warning: NCCL_DEBUG=INFO (ranks 0-7): unset it",
        ]

    @pytest.mark.parametrize(
        ("ranks", "text"),
        [
            ([3], "rank 3"),
            ([0, 1], "ranks 0-1"),
            ([4, 0, 2, 3, 2], "ranks 0, 2-4"),
            (list(range(1000)), "ranks 0-999"),
        ],
    )
    def test_ranks_are_written_as_ranges(self, ranks: list[int], text: str) -> None:
        assert rank_ranges(ranks) == text


def test_lines_tell_of_a_run_that_has_nothing_left() -> None:
    """As of a resumed one whose units are all there; and no time is left before any is done."""
    stream = io.StringIO()
    for total, work in ((0.0, 0.0), (5.0, 0.0), (2.0, 1.0)):
        progress = Lines(total, 2, stream)
        progress.advance(work, 0, "case")
        progress.advance(work, 1, "case")
        progress.close()
    told = [line.split(" after ")[0] for line in stream.getvalue().splitlines()]
    assert told == [f"epoch {epoch} of 2 done" for epoch in (1, 2, 1, 1, 2)]
    assert stream.getvalue().count(" left") == 1


def test_rows_not_to_rely_on_are_counted_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"status": "ok", "wrong": 0}] * 3 + [{"status": "skipped", "wrong": None}]
    show_conclusion(rows, [], FOLDER / "report.html", unstable=2)
    said = capsys.readouterr().out
    assert (
        "# 2 of 3 rows unstable, epochs differ by more than 10 %: more --epochs, or a quieter machine" in said
    )
    show_conclusion(rows, [], FOLDER / "report.html")
    assert "unstable" not in capsys.readouterr().out
