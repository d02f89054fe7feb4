"""What the page says of a run of ``groups``: costs in words first, figures, tables, hostile names as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from groups_fixtures import (
    MIB,
    make_cell,
    make_costs,
    make_groups,
    make_reading,
    make_times,
    written,
)
from report_browsing import Browser
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
from ncclbench.tables.groups import MOMENTS

NAME = "group-costs"


def block(*results: Result, **meta: Any) -> dict[str, Any]:
    (found,) = content(NAME, make_groups(results=results or None, **meta))["blocks"]
    return dict(found)


def test_the_headline_says_what_most_groups_cost_on_each_arm() -> None:
    found = block()
    assert found["headline"].startswith(
        "32 groups on gloo by new_group: 32 connections a rank, 32 MiB of host memory, 112 ms until all have "
        "worked; 8 groups on gloo#2 by new_group: 8 connections a rank"
    )
    assert found["tone"] == "warn", "an order that deadlocks"
    assert found["place"] == "gloo: ProcessGroupGloo (gloo), 4 ranks"
    assert "nccl2 is not here: needs a CUDA device" in found["notes"]
    assert "Left out: costs on gloo#2: split_group: it cannot split" in found["notes"]
    assert "Deadlocked on gloo: crossed." in found["said"]
    assert "Nothing but memory that the library keeps stays of groups that have ended." in found["said"]


def test_tones() -> None:
    assert block(make_costs())["tone"] == "good"
    assert block(make_cell("same", "deadlocked"))["tone"] == "bad"
    assert block(make_times(wrong=1))["headline"].startswith(
        "WRONG DATA in 1 element: group of ranks 0-1 in halves"
    )
    stays = {moment: make_reading() for moment in MOMENTS} | {"destroyed": make_reading(threads=9)}
    found = block(make_costs(readings=stays))
    assert (found["tone"], found["rows"][0]["leaks"]) == ("warn", True)


def test_run_that_ended_early_says_so() -> None:
    found = block(make_costs(1), status="interrupted", message="ended by SIGINT")
    assert found["headline"].endswith("; interrupted.")
    assert found["notes"] == ["ended by SIGINT"]


def test_the_figure_has_a_curve_for_each_arm_and_a_state_for_each_quantity() -> None:
    figure = figures_of(make_groups())["group-costs-0"]
    plots = figure.plots[ALWAYS]
    assert list(plots) == ["time", "communicators", "host memory"]
    assert [trace["name"] for trace in plots["time"].data] == ["gloo, new_group", "gloo#2, new_group"]
    assert plots["communicators"].data[0]["y"] == [1, 8, 32]
    on_gpu = {moment: make_reading(device_bytes=MIB * (moment == "used")) for moment in MOMENTS}
    assert (
        "device memory"
        in figures_of(make_groups(results=[make_costs(readings=on_gpu)]))["group-costs-0"].plots[ALWAYS]
    )


@pytest.mark.parametrize(
    "results",
    [
        [make_costs(1, new_us=[0.0], first_us=[0.0], p2p_us=[0.0])],
        [make_costs(communicators=None, counted="not counted")],
        [make_costs(1, new_us=[1e15])],
        [make_times(alone_us=[0.0], together_us=[0.0]), make_times(1, alone_us=None)],
        [make_cell("no order of ours")],
        [],
    ],
)
def test_numbers_that_no_run_has_break_no_page(results: list[Result]) -> None:
    Page(render(report_of([make_groups(results=results)])))


def test_page_has_what_it_needs_and_no_more() -> None:
    page = page_of(make_groups())
    assert {name for name in page.ids() if name in PANELS} == {NAME, "environment"}
    assert "TCP connections to other ranks, counted in /proc" in page.text


def test_beside_a_sweep() -> None:
    page = page_of(make_run(sizes=SMALL), make_groups())
    assert {NAME, "verdict", "curves"} <= page.ids()
    assert PANELS[NAME].build(report_of([make_run(sizes=SMALL)])) is None


def hostile() -> Run:
    word = HOSTILE[:100]
    return make_groups(
        label=HOSTILE,
        status="failed",
        message=HOSTILE,
        results=[
            ArmFound(arm="a", implementation=HOSTILE, device="cpu", reason=None),
            make_costs(arm="a<b>$x$", way=word, kind=word, counted=HOSTILE, implementation=HOSTILE),
            make_times(op=word, topology=word),
            make_cell(word, topologies=[word], said={"0": HOSTILE}),
        ],
    )


def test_hostile_words_stay_text() -> None:
    html = render(report_of([hostile()]))
    page = Page(html)
    assert "<script>alert('1')</script>" in page.text
    assert not page.tagged("img")
    drawn = drawing_of(html)["figures"]["group-costs-0"]["plots"][""]["time"]["data"]
    assert "alert" in json.dumps(drawn)
    assert "<script" not in json.dumps(drawn)


@pytest.mark.parametrize("name", ["everything", "hostile"])
def test_pages_are_drawn_without_a_fault_on_a_phone_too(browser: Browser, name: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(render(report_of([hostile() if name == "hostile" else make_groups()])), "utf-8")
    visit = browser.open(path, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True).drawn()
    assert visit.faults == []
    assert visit.requests == [path.as_uri()]
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.page.locator(f"#{NAME} img").count() == 0
    assert visit.page.locator(f"#{NAME} .plot svg.main-svg").count() > 0


def test_lines_survive_the_disk_and_the_report_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_groups()
    folder = written(tmp_path / "groups", run)
    loaded = load_run(folder)
    assert (loaded.results, loaded.problems) == (run.results, [])
    page = tmp_path / "page.html"
    assert run_command(["report", str(folder), "--redact", "--out", str(page)]) == 0
    capsys.readouterr()
    assert "32 groups on gloo by new_group" in Page(page.read_text("utf-8")).text


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("group-costs", {"new_us": [1.0, 2.0]}, "not all its times are of 1 groups"),
        ("group-costs", {"suspend_us": []}, "suspend_us"),
        ("group-costs", {"new_us": [-1.0]}, "new_us"),
        ("group-costs", {"groups": 0}, "groups"),
        ("group-costs", {"readings": {}}, "readings has []"),
        ("group-costs", {"communicators": [1]}, "not all its readings are of the same ranks"),
        ("groups-at-once", {"ranks": [0, 0]}, "a rank is in it twice"),
        ("groups-at-once", {"ranks": [0, 4]}, "rank 4 of 4"),
        ("groups-at-once", {"arm": "<b>"}, "arm <b> is not in the plan"),
        ("groups-at-once", {"alone_us": [1.0]}, "of different lengths"),
        ("groups-at-once", {"at_once": 0}, "at_once"),
        ("crossed", {"outcome": "fine"}, "outcome"),
        ("crossed", {"said": {"-1": "in it"}}, "'-1' is no rank"),
        ("crossed", {"said": {"4": "in it"}}, "rank 4 of 4"),
        ("crossed", {"said": {"9" * 5000: "in it"}}, "is no rank"),
        ("crossed", {"crossing": [9]}, "rank 9 of 4"),
        ("crossed", {"type": "trial"}, "damaged"),
        ("crossed", {"type": "p2p"}, "damaged"),
    ],
)
def test_damage_is_one_line(
    kind: str, changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "groups", make_groups())
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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (make_costs(epoch=1), "group-costs world 8 new_group gloo 1 is there twice"),
        (make_times(1), "groups-at-once gloo 65536 halves 1 0 is there twice"),
        (make_times(1, epoch=9, ranks=[3, 2]), "group 1 of halves has other ranks than before"),
        (make_times(2, epoch=9, ranks=[3]), "rank 3 is in two groups of halves"),
        (make_cell(), "crossed crossed gloo 65536 is there twice"),
    ],
)
def test_lines_that_cannot_stand_beside_the_others(more: Any, said: str, tmp_path: Path) -> None:
    """Counted as one more epoch, a line that is there twice would make intervals narrower than they are."""
    results = [make_costs(epoch=1), make_times(0), make_times(1), make_times(1, epoch=1), make_cell()]
    load_run(written(tmp_path / "good", make_groups(results=results)))
    with pytest.raises(RequestError, match=said):
        load_run(written(tmp_path / "bad", make_groups(results=[*results, more])))


def test_readings_of_other_ranks_than_the_run_has_are_refused(tmp_path: Path) -> None:
    readings = {moment: make_reading(nranks=2) for moment in MOMENTS}
    run = make_groups(results=[make_costs(readings=readings, communicators=[1, 1])])
    with pytest.raises(RequestError, match="it has readings of 2 ranks of 4"):
        load_run(written(tmp_path / "groups", run))
