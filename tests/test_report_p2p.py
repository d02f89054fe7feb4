"""What the page says of a point-to-point run: words first, figures, the matrix, what torch really does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from p2p_fixtures import (
    SIZES,
    make_cell,
    make_check,
    make_first,
    make_p2p,
    make_peers,
    make_way,
    written,
)
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, content, drawing_of, figures_of, page_of

from ncclbench.cli.app import run as run_command
from ncclbench.errors import RequestError
from ncclbench.report.build import render, report_of
from ncclbench.report.figures import ALWAYS
from ncclbench.report.panels import PANELS
from ncclbench.store.model import Result, Run
from ncclbench.store.p2p import ArmFound
from ncclbench.store.reader import load_run
from ncclbench.tables.semantics import SEMANTICS


def block(*results: Result, **meta: Any) -> dict[str, Any]:
    (found,) = content("p2p", make_p2p(results=results or None, **meta))["blocks"]
    return dict(found)


# --- in words


def test_deadlocks_come_first() -> None:
    found = block()
    assert found["tone"] == "warn"
    assert found["headline"] == (
        "2 of 3 orders of calling do not end, torch does otherwise than one would think in 1 of 2 questions"
    )
    assert found["place"] == "gloo: ProcessGroupGloo (gloo), 3 ranks"
    assert found["said"][0] == (
        "send-send on gloo (both send, then both receive): deadlocked from 8 bytes on, the smallest that was "
        "tried."
    )
    assert found["said"][1].endswith("raised from 1M on.")
    (fast,) = [line for line in found["said"] if line.startswith("gloo: latency ")]
    assert "95 % interval" in fast
    assert "(half of a ping-pong of 8 bytes); most bandwidth one way " in fast
    first = "A first message takes 900 µs, at worst 900 µs (rank 1 on gloo), later ones 30.0 µs."
    assert first in found["said"]
    assert "Left out: semantics on nccl2: its cells take 2 GPUs" in found["notes"]


def test_a_safe_order_that_hangs_is_bad_and_wrong_data_worse() -> None:
    assert block(make_cell("batched", 8, "deadlocked"))["tone"] == "bad"
    found = block(make_way(wrong=3), make_cell("batched", 8, "completed"))
    assert (found["tone"], found["headline"]) == (
        "bad",
        "WRONG DATA in 3 messages, every order of calling that was tried ends",
    )
    left = block(make_cell("batched", 8, "completed", leftover_processes=1))
    assert left["headline"].startswith("1 process left behind")


def test_ways_alone() -> None:
    found = block(make_way(), make_way("send"))
    assert (found["tone"], found["headline"]) == ("good", "2 rows measured, data right")
    assert [line["way"] for line in found["rows"]] == ["isend", "send"]
    assert block(make_way(), asked={"check": 0})["headline"] == "1 row measured, data not checked"
    assert block(make_way(wrong=1))["headline"] == "WRONG DATA in 1 message, 1 row measured"
    assert block(make_peers())["headline"] == "Several peers measured, data right"
    assert found["rows"][0]["cells"][:4] == ["10.0 µs", "31.0 µs", "41.0 µs", "52.0 µs"]


def test_run_that_ended_early_says_so() -> None:
    found = block(make_first(), status="interrupted", message="ended by SIGINT")
    assert (found["tone"], found["headline"]) == ("warn", "First messages measured, interrupted")
    assert found["notes"] == ["ended by SIGINT"]


def test_an_arm_that_is_not_here() -> None:
    gone = ArmFound(arm="nccl2", implementation=None, device=None, reason="needs a CUDA device")
    assert "nccl2 is not here: needs a CUDA device" in block(gone, make_way())["notes"]


def test_matrix_shows_what_was_tried_and_what_follows() -> None:
    (matrix,) = block()["matrices"]
    assert matrix["sizes"] == ["8", "4K", "1M"]
    kinds = {line["order"]: [cell["kind"] for cell in line["cells"]] for line in matrix["lines"]}
    assert kinds == {
        "send-send": ["deadlocked", "untried", "untried"],
        "batched": ["completed", "untried", "completed"],
        "isend-recv": ["completed", "completed", "raised"],
    }
    texts = {line["order"]: [cell["text"] for cell in line["cells"]] for line in matrix["lines"]}
    assert texts["send-send"] == ["deadlock", "(deadlock)", "(deadlock)"]
    assert texts["batched"] == ["ends", "(ends)", "ends"]
    assert matrix["lines"][0]["stood"] == "rank 0 in send, rank 1 in send"


def test_several_peers_are_held_against_one_after_the_other() -> None:
    (plain, beside) = block()["peers"]
    assert plain[1:5] == ["2", "4K", "60.0 µs", "40.0 µs"]
    assert plain[6] == "0.75x"
    assert beside[1] == "2 and all_reduce"
    assert beside[5] == "100 µs"


def test_every_question_stands_there_asked_or_not() -> None:
    semantics = block()["semantics"]
    assert [entry["question"] for entry in semantics] == [each.question for each in SEMANTICS.values()]
    answered = {entry["question"]: entry["answers"] for entry in semantics if entry["answers"]}
    assert len(answered) == 3
    (answer,) = answered[SEMANTICS["is-completed"].question]
    assert (answer["outcome"], answer["mark"]) == ("otherwise", True)
    assert "Not asked in this run." in page_of(make_p2p()).text
    page = page_of(make_p2p(results=[make_way()]))
    assert page.text.count("ot asked in this run") == 1
    assert "not asked in this run: ncclbench p2p --semantics does" in page.text


def test_a_question_without_an_answer_is_said_and_counted_apart() -> None:
    found = block(make_check("call-time", "as-documented"), make_check("is-completed", "unanswered"))
    assert found["headline"] == (
        "Torch does otherwise than one would think in 0 of 1 question, 1 question unanswered"
    )
    assert found["tone"] == "warn"


# --- figures


def test_figures_have_a_curve_for_each_way_over_sizes() -> None:
    figures = figures_of(make_p2p())
    assert {"p2p-latency-0", "p2p-bandwidth-0", "p2p-host-0"} <= set(figures)
    plot = figures["p2p-latency-0"].plots[ALWAYS]["gloo"]
    names = [trace["name"] for trace in plot.data]
    assert names == [
        "send",
        "isend",
        "isend, both ways",
        "batched",
        "batched, both ways",
        "window",
        "ping-pong",
    ]
    assert all(trace["x"] == list(SIZES) for trace in plot.data)
    shares = figures["p2p-host-0"].plots[ALWAYS]["gloo"].data
    assert shares[0]["y"] == [100.0] * 3, "send holds the host until it is done"
    assert max(shares[1]["y"]) < 50


def test_arms_are_options_of_the_figures() -> None:
    run = make_p2p(results=[make_way(), make_way(arm="gloo#2")])
    assert list(figures_of(run)["p2p-latency-0"].plots[ALWAYS]) == ["gloo", "gloo#2"]


@pytest.mark.parametrize(
    "results",
    [
        [make_way(host_us=[0.0], total_us=[0.0], free_us=[0.0], there_us=[0.0])],
        [make_way(nbytes=0), make_first(later_us=[0.0]), make_peers(one_us=[0.0, 0.0])],
        [make_way("no way of ours"), make_cell("no order"), make_check("no question")],
        [make_way(nbytes=(1 << 62) - 1, there_us=[1e15, 1e15])],
    ],
)
def test_numbers_that_no_run_has_break_no_page(results: list[Result]) -> None:
    Page(render(report_of([make_p2p(results=results)])))


# --- on the page


def test_page_has_what_it_needs_and_no_more() -> None:
    page = page_of(make_p2p())
    assert {name for name in page.ids() if name in PANELS} == {"p2p", "environment", "howto"}
    assert "busbw is algbw" not in page.text
    assert "parts ways,first,ordering" in page.text


def test_beside_a_sweep() -> None:
    page = page_of(make_run(sizes=SMALL), make_p2p())
    assert {"p2p", "verdict", "curves"} <= page.ids()
    assert PANELS["p2p"].build(report_of([make_run(sizes=SMALL)])) is None


def hostile() -> Run:
    return make_p2p(
        label=HOSTILE,
        status="failed",
        message=HOSTILE,
        results=[
            ArmFound(arm="a", implementation=HOSTILE, device="cpu", reason=None),
            make_way(HOSTILE[:100], arm="a<b>$x$"),
            make_cell(HOSTILE[:100], said={"0": HOSTILE}),
            make_check(HOSTILE[:100], said=HOSTILE),
            make_peers(beside=HOSTILE[:100], beside_us=[1.0, 1.0]),
        ],
    )


def test_hostile_words_stay_text() -> None:
    html = render(report_of([hostile()]))
    page = Page(html)
    assert "<script>alert('1')</script>" in page.text
    assert not page.tagged("img")
    drawn = drawing_of(html)["figures"]["p2p-latency-0"]["plots"][""]["a<b>$x$"]["data"]
    assert "alert" in json.dumps(drawn)
    assert "<script" not in json.dumps(drawn)


# --- on disk


def test_lines_survive_the_disk_and_the_report_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_p2p()
    folder = written(tmp_path / "p2p", run)
    loaded = load_run(folder)
    assert (loaded.results, loaded.problems) == (run.results, [])
    assert run_command(["report", str(folder), "--json"]) == 0
    capsys.readouterr()
    assert "2 of 3 orders of calling do not end" in Page((folder / "report.html").read_text("utf-8")).text


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("p2p", {"free_us": [1.0]}, "of different lengths"),
        ("p2p", {"host_us": []}, "host_us"),
        ("p2p", {"total_us": [-1.0, 1.0]}, "total_us"),
        ("p2p", {"messages": 0}, "messages"),
        ("p2p", {"nbytes": 1 << 70}, "nbytes"),
        ("first", {"dst": 0}, "rank 0 sends to itself"),
        ("first", {"dst": 3}, "rank 3 of 3"),
        ("peers", {"peers": 3}, "rank 3 of 3"),
        ("peers", {"beside": "all_reduce"}, "beside and beside_us go together"),
        ("ordering", {"outcome": "fine"}, "outcome"),
        ("ordering", {"said": {"-1": "in send"}}, "'-1' is no rank"),
        ("semantics", {"value": 1e300}, "value"),
        ("arm", {"reason": "and why not"}, "either an implementation or a reason"),
        ("first", {"type": "trial"}, "damaged"),
        ("first", {"type": "samples"}, "damaged"),
    ],
)
def test_damage_is_one_line(
    kind: str, changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "p2p", make_p2p())
    file = folder / "samples.jsonl"
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    at = next(number for number, entry in enumerate(entries) if entry["type"] == kind)
    entries[at] |= changes
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    with pytest.raises(RequestError, match=f"line {at + 1} is damaged"):
        load_run(folder)
    assert run_command(["report", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
