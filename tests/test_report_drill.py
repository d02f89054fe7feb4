"""What is said of a drill, on the terminal and on the page: who recovered, how fast, what was wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drill_fixtures import CONTRACT, make_drill, make_trial, written
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, content, drawing_of, figures_of, page_of

from ncclbench.cli.app import run as run_command
from ncclbench.report.build import render, report_of
from ncclbench.report.figures import ALWAYS
from ncclbench.report.panels import PANELS
from ncclbench.stats.recovery import Outcome, over_trials, recoveries
from ncclbench.store.drills import PHASES
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run
from ncclbench.terminal.drill import drill_lines, sentence


def block(run: Run) -> dict[str, Any]:
    (found,) = content("drill", run)["blocks"]
    return dict(found)


def test_the_recovery_comes_before_what_a_recorder_saw_of_the_fault() -> None:
    order = list(PANELS)
    assert order.index("drill") < order.index("flight")


# --- over trials


def test_interval_is_students_on_logarithms() -> None:
    found = over_trials([10.0, None, 20.0, 40.0])
    assert found is not None
    assert (found.n, found.median, found.worst) == (3, 20.0, 40.0)
    # Mean of log2 is log2(20), its standard error 1/sqrt(3), t(0.975; 2) = 4.3027.
    assert found.low == pytest.approx(20 * 2 ** (-4.30265 / 3**0.5), rel=1e-4)
    assert found.high == pytest.approx(20 * 2 ** (4.30265 / 3**0.5), rel=1e-4)


def test_two_trials_have_no_interval_and_none_has_nothing() -> None:
    two = over_trials([1.0, 3.0])
    assert two is not None
    assert (two.median, two.low, two.high) == (2.0, None, None)
    assert over_trials([None]) is None


def test_faults_strategies_and_spares_are_kept_apart() -> None:
    trials = [
        make_trial(),
        make_trial(number=1, recovered=False, correct=False, outcome="timed out", leftover_processes=2),
        make_trial(spare="warm"),
        make_trial(fault="hang"),
    ]
    first, warm, hang = recoveries(trials)
    assert (first.trials, first.recovered, first.correct, first.leftover_processes) == (2, 1, 1, 2)
    assert first.outcomes == [Outcome("timed out", 1, recovered=False)]
    assert (warm.spare, warm.trials) == ("warm", 1)
    assert hang.fault == "hang"
    json.dumps(first.to_json(), allow_nan=False)


# --- on the terminal


def test_a_sentence_and_a_table_for_each_strategy() -> None:
    run = make_drill(strategies=("reconfigure", "abort"), trials=3)
    recovered, watched = map(sentence, recoveries(run.trials))
    assert recovered.startswith("kill, reconfigure: 3 of 3 recovered, first good collective at n-1 after 4")
    assert "at n after " in recovered
    assert watched.startswith("kill, abort: 3 times, no recovery tried, the last survivor notices after 2")
    lines = drill_lines(run.trials, CONTRACT, {"shrink": "gloo has no shrink_group"})
    (heading,) = [line for line in lines if line.startswith("# kill, reconfigure")]
    assert heading == "# kill, reconfigure, cold spare, milliseconds since the fault:"
    row = next(line for line in lines if "first good collective at n-1" in line and line.startswith("  "))
    assert row.split()[-1] == "3"
    assert ".." in row
    (asked,) = [line for line in lines if line.startswith("# replacement asked for after 2")]
    assert " once the bandwidth was taken; ready in 1" in asked
    assert "# shrink: not here: gloo has no shrink_group" in lines
    assert "# contract: 1 of 2 cases consistent over ranks" in lines
    assert "reused-uuid: NOT CONSISTENT; a fresh uuid works afterwards" in lines
    assert "    rank 2: timed out after 10 s" in lines
    assert "    see it again: ncclbench drill --contract reused-uuid" in lines


def test_failed_trials_are_in_the_sentence_with_their_outcome_above() -> None:
    trials = [make_trial(number=number) for number in range(2)]
    trials.append(
        make_trial(
            number=2, recovered=False, correct=False, outcome="rank 0 timed\nout", leftover_processes=1
        )
    )
    (said,) = map(sentence, recoveries(trials))
    assert said.startswith("kill, reconfigure: 2 of 3 recovered")
    assert "1 processes left behind" in said
    lines = drill_lines(trials)
    assert "# not recovered, 1 of 3: rank 0 timed out" in lines


def test_what_there_is_to_say_of_a_trial_that_went_as_it_should() -> None:
    trials = [make_trial("abort", outcome="rank 0 still waited after 20 s")]
    assert "# 1 of 1: rank 0 still waited after 20 s" in drill_lines(trials)


# --- on the page


def test_all_recovered() -> None:
    found = block(make_drill(contract=False))
    assert (found["tone"], found["headline"]) == ("good", "All 15 trials recovered")
    assert found["place"] == "kill of rank 2 at step 20, gloo, 3 ranks"
    assert [line["name"] for line in found["strategies"]] == ["reconfigure", "rebuild", "restart"]
    assert found["strategies"][0]["start"].startswith("1.5")
    restart = found["strategies"][2]
    assert restart["times"][1] == "–"
    assert restart["times"][2].endswith(" s")
    assert found["strategies"][0]["kept"] == "98 %"


def test_wrong_data_comes_first_and_is_bad() -> None:
    run = make_drill(contract=False, trials=2)
    run.trials.append(make_trial(number=2, correct=False))
    found = block(run)
    assert found["tone"] == "bad"
    assert found["headline"] == "WRONG DATA after 1 of 7 trials, all 7 trials recovered"


def test_contract_that_is_broken_is_a_warning_with_its_command() -> None:
    found = block(make_drill())
    assert found["tone"] == "warn"
    assert found["headline"] == ("All 15 trials recovered, 1 of 2 contract cases consistent over ranks")
    (broken, _) = found["contract"]
    assert broken["ranks"][2] == "rank 2: timed out (10.0 s)"
    assert broken["command"] == "ncclbench drill --contract reused-uuid"


def test_watching_is_no_recovery() -> None:
    found = block(make_drill(contract=False, strategies=("reconfigure", "abort"), trials=2))
    assert found["headline"] == "All 2 trials recovered"
    assert [line["recovered"] for line in found["strategies"]] == ["2 of 2", "–"]
    alone = block(make_drill(contract=False, strategies=("abort",), trials=2))
    assert (alone["tone"], alone["headline"]) == ("good", "No recovery tried")


def test_drill_that_ended_early_says_so() -> None:
    run = make_drill(contract=False, trials=1, status="interrupted", message="ended by SIGINT")
    found = block(run)
    assert found["headline"] == "All 3 trials recovered, interrupted"
    assert found["notes"] == ["ended by SIGINT"]
    empty = replace(run, trials=[])
    assert block(empty)["headline"] == "Nothing drilled, interrupted"
    assert block(empty)["figures"] == []


def test_bars_are_medians_with_intervals() -> None:
    run = make_drill()
    plot = figures_of(run)["phases-0"].plots[ALWAYS]["kill"]
    reconfigure, rebuild, restart = plot.data
    assert (reconfigure["orientation"], reconfigure["name"]) == ("h", "reconfigure")
    (found, _, _) = recoveries(run.trials)
    good = found.phases_ms["first_good_n_minus_1"]
    assert good is not None
    at = reconfigure["y"].index("first good collective at n-1")
    assert reconfigure["x"][at] == pytest.approx(good.median, rel=1e-4)
    assert good.high is not None
    assert reconfigure["error_x"]["array"][at] == pytest.approx(good.high - good.median, rel=1e-3)
    assert "first good collective at n-1" not in restart["y"]
    assert len(rebuild["y"]) == 8
    low, high = (10**end for end in plot.layout["xaxis"]["range"])
    assert low < min(reconfigure["x"])
    assert high > max(restart["x"])
    assert figures_of(run)["bandwidth-0"].plots[ALWAYS]["kill"].data[0]["x"] == [
        "before",
        "at n-1",
        "at n again",
    ]


def test_each_fault_is_an_option_of_the_figure() -> None:
    run = make_drill(trials=3)
    run.trials += [make_trial(fault="hang", number=number, factor=1.5) for number in range(3)]
    assert list(figures_of(run)["phases-0"].plots[ALWAYS]) == ["kill", "hang"]


def test_phases_that_took_no_time_are_no_bars() -> None:
    run = make_drill(strategies=("reconfigure",), trials=1)
    run.trials = [make_trial(phases_ms=dict.fromkeys(PHASES, 0.0), before_GBs=0.0)]
    assert "phases-0" not in figures_of(run)
    assert render(report_of([run]))


def test_a_strategy_has_one_colour_in_all_figures() -> None:
    """Also where a strategy before it has nothing to show in one of them."""
    run = make_drill(strategies=(), contract=False)
    nothing = dict.fromkeys(PHASES)
    paced = {"before_steps_per_s": 200.0, "slow_steps_per_s": 50.0, "during_steps_per_s": 220.0}
    run.trials = [
        make_trial("restart", fault="slow", phases_ms=nothing),
        make_trial("rebuild", fault="slow", **paced),
    ]
    colours = {
        trace["marker"]["color"]
        for figure in figures_of(run).values()
        for plot in figure.plots[ALWAYS].values()
        for trace in plot.data
        if trace["name"] == "rebuild"
    }
    assert len(figures_of(run)) == 3
    assert len(colours) == 1


def test_trials_left_alone_are_no_recoveries() -> None:
    nothing = dict.fromkeys(PHASES)
    alone = "the policy left all as they are: steps take rank 2 1.9 times as long as the others"
    trials = [make_trial(fault="slow"), make_trial(number=1, fault="slow", phases_ms=nothing, outcome=alone)]
    (recovery,) = recoveries(trials)
    assert (recovery.trials, recovery.recovered, recovery.watched) == (2, 2, 1)
    assert sentence(recovery).startswith("slow, reconfigure: 1 of 1 recovered, nobody was detached in 1, ")
    run = make_drill(strategies=(), contract=False)
    run.trials = trials
    text = page_of(run).text
    assert "The trial recovered" in text
    assert alone in text


def test_what_restart_does_not_show_is_said() -> None:
    run = make_drill(strategies=("restart",))
    assert "restart: no pace and no flight recorder are kept" in page_of(run).text
    assert "# no pace and no flight recorder are kept: its ranks are torchrun's" in drill_lines(run.trials)


def test_page_of_a_drill_has_what_it_needs_and_no_more() -> None:
    page = page_of(make_drill())
    panels = {name for name in page.ids() if name in PANELS}
    assert panels == {"drill", "environment", "howto"}
    assert "busbw is algbw" not in page.text
    assert "fault kill, victim 2, step 20, trials 5, spare cold" in page.text


def test_drill_and_sweep_on_one_page() -> None:
    page = page_of(make_run(sizes=SMALL), make_drill())
    assert {"drill", "verdict", "curves"} <= page.ids()
    assert PANELS["drill"].build(report_of([make_run(sizes=SMALL)])) is None


def test_hostile_words_stay_text() -> None:
    run = make_drill(trials=2, label=HOSTILE, message=HOSTILE, status="failed")
    run.trials = [
        make_trial(HOSTILE, fault=HOSTILE, recovered=False, correct=False, outcome=HOSTILE),
        make_trial(HOSTILE, 1, fault=HOSTILE),
    ]
    html = render(report_of([run]))
    page = Page(html)
    assert "<script>alert('1')</script>" in page.text
    assert not page.tagged("img")
    drawing = json.dumps(drawing_of(html))
    assert "alert" in drawing
    assert "<script" not in json.dumps(drawing_of(html)["figures"]["phases-0"]["plots"][""][HOSTILE]["data"])


# --- the commands


def test_lines_survive_the_disk_and_the_report_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_drill()
    folder = written(tmp_path / "drill", run)
    loaded = load_run(folder)
    assert (loaded.trials, loaded.contract, loaded.problems) == (run.trials, run.contract, [])
    assert run_command(["report", str(folder), "--json"]) == 0
    capsys.readouterr()
    assert "All 15 trials recovered" in Page((folder / "report.html").read_text("utf-8")).text


def test_compare_refuses_a_drill_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (written(tmp_path / name, make_drill()) for name in ("a", "b"))
    assert run_command(["compare", str(one), str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is of ncclbench drill and has no rows to compare" in line
