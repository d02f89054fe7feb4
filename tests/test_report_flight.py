"""The page of dumps: what it says, what it leaves out of large ones, and the same within a run's report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drill_fixtures import make_drill
from flying import dump, entry, job, write_json
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, drawing_of

from ncclbench.flight.dumps import read
from ncclbench.flight.judge import judge
from ncclbench.report.build import render, render_flight, report_of, write_report
from ncclbench.report.contents import page_texts
from ncclbench.report.flight.arrivals import ISSUED, LOST, NO_SHOW, NOT_YET, OTHER, WAITS
from ncclbench.report.flight.model import MOST_BARS, MOST_RANKS, Flight, flight_of
from ncclbench.report.flight.redacting import without_names
from ncclbench.report.flight.runs import flights_of
from ncclbench.report.panels import PANELS
from ncclbench.report.panels.flight_ranks import MOST_LINES
from ncclbench.report.redact import Redactor

MOST_BYTES = 2_200_000


def flown(folder: Path, dumps: dict[int, dict[str, Any]], hosts: dict[int, str] | None = None) -> Flight:
    """Dumps as the page has them."""
    evidence = read(write_json(folder / "dumps", dumps), hosts)
    return flight_of(evidence, judge(evidence))


def text_in(page: str) -> str:
    """What a reader of the page reads."""
    return Page(page).text


def test_page_says_who_did_not_come(tmp_path: Path) -> None:
    flight = flown(tmp_path, job(absent=[2]), {rank: f"gpu{rank // 2}" for rank in range(4)})
    text = text_in(render_flight(flight))
    assert "Stuck" in text
    assert "rank 2 (gpu1) did not come" in text
    assert "last issued all_reduce 11 of default_pg, completed" in text
    assert "4 dumps of 4 ranks, 47 operations, format version 2.10" in text


def test_map_tells_each_rank_and_number(tmp_path: Path) -> None:
    flight = flown(tmp_path, job(absent=[2], numbers=5))
    only = flight.maps[0]
    assert (only.ranks, only.sequences) == ((0, 1, 2, 3), (1, 2, 3, 4, 5))
    came, absent = (ISSUED,) * 4 + (WAITS,), (ISSUED,) * 4 + (NO_SHOW,)
    assert only.cells == (came, came, absent, came)


def test_map_tells_other_operations_and_what_was_lost(tmp_path: Path) -> None:
    dumps = job(other={1: {"op": "broadcast"}}, numbers=5)
    # The ring of rank 3 no longer holds its first two.
    dumps[3]["entries"] = dumps[3]["entries"][2:]
    flight = flown(tmp_path, dumps)
    cells = dict(zip(flight.maps[0].ranks, flight.maps[0].cells, strict=True))
    assert cells[1][-1] == OTHER
    assert cells[3][:3] == (LOST, LOST, ISSUED)
    assert flight.maps[0].collectives[1][-1] == "broadcast"


def test_map_of_a_rank_that_is_far_behind(tmp_path: Path) -> None:
    dumps = job(absent=[2], numbers=12)
    for rank, own in dumps.items():
        # The others have issued six more without waiting for the first of them.
        later = [] if rank == 2 else [entry(number, done=False) for number in range(7, 13)]
        own["entries"] = own["entries"][:6] + later
    flight = flown(tmp_path, dumps)
    assert flight.maps[0].finding.sequence == 7
    row = dict(zip(flight.maps[0].ranks, flight.maps[0].cells, strict=True))[2]
    assert row[5:9] == (ISSUED, NO_SHOW, NOT_YET, NOT_YET)


def test_figures_draw_every_operation_and_who_is_missing(tmp_path: Path) -> None:
    flight = flown(tmp_path, job(absent=[2]))
    figures = drawing_of(render_flight(flight))["figures"]
    plot = figures["flight-time-0"]["plots"][""]["around all_reduce 12"]
    bars = [trace for trace in plot["data"] if trace["type"] == "bar"]
    assert sum(len(trace["x"]) for trace in bars) == 47
    waiting = next(trace for trace in bars if trace["name"] == "not finished")
    assert sorted(waiting["y"]) == [0, 1, 3]
    missing = next(trace for trace in plot["data"] if trace["name"] == "did not come")
    assert (missing["x"], missing["y"]) == ([0.0], [2])
    # Three milliseconds from start to end, as recorded, of four.
    done = next(trace for trace in bars if trace["name"] == "default_pg")
    assert done["x"][0] == pytest.approx(4.0)
    cells = figures["flight-map-0"]["plots"][""]["all_reduce 12 of default_pg"]["data"][0]["z"]
    assert len(cells) == 4


def test_large_dumps_make_a_small_page(tmp_path: Path) -> None:
    hosts = {rank: f"gpu{rank // 8:03}" for rank in range(400)}
    frames = [("step", "/job/train.py", 88)]
    flight = flown(tmp_path, job(nranks=400, numbers=200, absent=[333], frames=frames), hosts)
    page = render_flight(flight)
    assert len(page.encode()) < MOST_BYTES
    assert len(flight.drawn) == MOST_RANKS
    assert flight.nshown <= MOST_BARS
    assert 333 in {state.rank for state in flight.drawn}
    text = text_in(page)
    assert f"And {400 - MOST_LINES} more" in text
    note = drawing_of(page)["figures"]["flight-time-0"]["plots"][""]["around all_reduce 200"]["note"]
    assert f"{flight.nshown:,} operations of 79,999, those around the first finding" in note
    assert f"of {MOST_RANKS} of 400 ranks, those to blame" in note


def test_one_page_for_what_could_not_be_read(tmp_path: Path) -> None:
    paths = write_json(tmp_path / "dumps", job(nranks=3, absent=[1]))
    paths[2].write_text("nothing")
    evidence = replace(read(paths), nranks=3)
    text = text_in(render_flight(flight_of(evidence, judge(evidence))))
    assert "What is not known" in text
    assert "rank2.json: " in text


def test_no_text_of_a_dump_is_markup(tmp_path: Path) -> None:
    frames = [(HOSTILE, HOSTILE, 1)]
    flight = flown(
        tmp_path, job(absent=[2], group=("0", HOSTILE), frames=frames), dict.fromkeys(range(4), HOSTILE)
    )
    page = render_flight(flight)
    assert "<img" not in page
    assert "<script>alert" not in page
    assert " ".join(HOSTILE.split()) in text_in(page)
    # Names of options are put in as text by the page; plotly reads a little HTML in all else.
    for figure in drawing_of(page)["figures"].values():
        for plot in figure["plots"][""].values():
            drawn = json.dumps([plot["data"], plot["layout"]])
            assert "<img" not in drawn
            assert "<script" not in drawn


def test_groups_beyond_the_colours_share_one(tmp_path: Path) -> None:
    groups = [(str(number), f"tp{number}") for number in range(9)]
    entries = [
        entry(number + 1, group=group, record=9 * number + place)
        for number in range(3)
        for place, group in enumerate(groups)
    ]
    flight = flown(tmp_path, {rank: dump(entries, range(2)) for rank in range(2)})
    data = drawing_of(render_flight(flight))["figures"]["flight-time-0"]["plots"][""]["operations"]["data"]
    assert len(data) == 5  # four by name
    assert data[-1]["name"] == "other groups"


def test_report_of_a_run_has_what_its_ranks_left(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", sizes=SMALL)
    nranks = run.plan.nranks
    write_json(tmp_path / "run" / "flight", job(nranks=nranks, absent=[1]))
    text = text_in(render(report_of([run])))
    assert "Who is stuck" in text
    assert "rank 1 (node-00) did not come" in text
    assert "Who is stuck" not in text_in(render(report_of([make_run(tmp_path / "other", sizes=SMALL)])))


def test_report_of_a_run_tells_of_dumps_that_cannot_be_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", sizes=SMALL)
    (tmp_path / "run" / "flight").mkdir(parents=True)
    (tmp_path / "run" / "flight" / "rank0-gloo.json").write_text("torn {", encoding="utf-8")
    text = text_in(render(report_of([run])))
    assert "It cannot be told" in text
    assert "not read" in text


def test_redacted_report_of_a_run_keeps_the_answer(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", sizes=SMALL)
    for number, host in enumerate(run.meta["environment"]["hosts"]):
        host["name"] = f"frontier{number:05}"
    frames = [("step", "/home/mallory/secret-project/train.py", 88)]
    write_json(tmp_path / "run" / "flight", job(nranks=run.plan.nranks, absent=[1], frames=frames))
    flights = flights_of([run])
    redactor = Redactor([run], [flight for flight in flights if flight])
    shown = [flight and without_names(flight, redactor) for flight in flights]
    page = tmp_path / "page.html"
    write_report(redactor.runs, page, redactor=redactor, flights=shown)
    html = page.read_text("utf-8")
    texts = "\n".join(page_texts(html))
    assert "rank 1 (node-1) did not come" in texts
    for name in ("frontier", "mallory", "secret-project"):
        assert name not in texts


def test_on_the_page_of_a_drill_it_is_said_that_the_job_went_on(tmp_path: Path) -> None:
    flight = flown(tmp_path, job(absent=[2]))
    found = {
        kind: PANELS["flight"].build(report_of([run], flights=[flight]))
        for kind, run in {"drill": make_drill(), "sweep": make_run(sizes=SMALL)}.items()
    }
    assert {kind: content and content["of_drill"] for kind, content in found.items()} == {
        "drill": True,
        "sweep": False,
    }
