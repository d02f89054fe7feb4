"""What the report says of a search: who is slow, with its evidence, and who begins last in a sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, content, drawing_of, figures_of, page_of
from searching_fixtures import make_search

from ncclbench.cli.app import run as run_command
from ncclbench.report.arriving import last_to_begin
from ncclbench.report.build import render, report_of, write_report
from ncclbench.report.figures import ALWAYS, Plot
from ncclbench.report.panels import PANELS
from ncclbench.report.redact import Redactor
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import Run


def block(run: Run) -> dict[str, Any]:
    (found,) = content("suspects", run)["blocks"]
    return dict(found)


def facts(run: Run) -> dict[str, str]:
    return dict(block(run)["facts"])


def plot(run: Run, figure: str, option: str) -> Plot:
    return figures_of(run)[figure].plots[ALWAYS][option]


@pytest.fixture(scope="module")
def healthy() -> Run:
    return make_search()


@pytest.fixture(scope="module")
def slow_host() -> Run:
    return make_search(hosts=6, ranks_per_host=2, slow_hosts={2: 4.0})


@pytest.fixture(scope="module")
def slow_rank() -> Run:
    return make_search(hosts=3, ranks_per_host=2, slow_ranks={4: 1.9})


# --- the answer


def test_nobody(healthy: Run) -> None:
    found = block(healthy)
    assert (found["tone"], found["headline"], found["suspects"]) == ("good", "Nobody stands out", [])
    assert found["message"].startswith("Nobody: spread is within noise (largest 1.")
    assert found["place"] == "suspects on nccl2, 4 ranks on 4 hosts"
    assert "hosts to drain" not in facts(healthy)
    assert facts(healthy)["who comes last"] == "nobody in particular, in 60 iterations (chance 25 %)"


def test_slow_host_with_its_factor_evidence_and_what_to_drain(slow_host: Run) -> None:
    found = block(slow_host)
    assert (found["tone"], found["headline"]) == ("bad", "Slow: host node-02")
    (suspect,) = found["suspects"]
    assert suspect["who"] == "host node-02"
    assert 3.8 < float(suspect["factor"].rstrip("x")) < 4.2
    low, high = (float(end.rstrip("x")) for end in suspect["interval"].split(" – "))
    assert 3.5 < low <= float(suspect["factor"].rstrip("x")) <= high < 4.5
    assert "(5 of 5 pairs)" in suspect["evidence"]
    assert facts(slow_host)["hosts to drain"] == "node-02"
    assert facts(slow_host)["looked at"].startswith("132 of 132 ordered pairs of 12 ranks, 6 rounds")


def test_several_are_named_together() -> None:
    run = make_search(hosts=8, ranks_per_host=2, slow_hosts={5: 4.0}, slow_pairs={(0, 7): 3.0, (7, 0): 3.0})
    found = block(run)
    assert found["headline"] == "Slow: host node-05 and pair 0-7 (node-00, node-03), both directions"
    assert len(found["suspects"]) == 2


def test_slow_rank_computes_longer_and_comes_last(slow_rank: Run) -> None:
    found = block(slow_rank)
    assert found["headline"] == "Slow: rank 4 (node-02)"
    assert "computes 1.9x slower" in found["suspects"][0]["evidence"]
    said = facts(slow_rank)["who comes last"]
    assert said.startswith("rank 4 (node-02) in 60 of 60 iterations (94 to 100 %; chance 17 %), by 3.5")


def test_what_ended_early_is_no_all_clear(healthy: Run) -> None:
    run = replace(healthy, meta=healthy.meta | {"status": "failed", "message": "rank 1 on node-01 died"})
    found = block(run)
    assert (found["tone"], found["headline"]) == ("warn", "Nobody stands out, the search failed")
    assert found["notes"] == ["rank 1 on node-01 died"]


def test_search_that_measured_nothing(healthy: Run) -> None:
    run = replace(healthy, probes=[], meta=healthy.meta | {"status": "failed", "message": "no such backend"})
    assert block(run)["headline"] == "Nothing measured, the search failed"
    assert "links" not in page_of(run).ids()


def test_wrong_data_comes_first() -> None:
    run = make_search()
    run.probes = [
        msgspec.structs.replace(probe, wrong=True)
        if getattr(probe, "src", None) == 1 and getattr(probe, "dst", None) == 3
        else probe
        for probe in run.probes
    ]
    found = block(run)
    assert found["tone"] == "bad"
    assert found["headline"].startswith("WRONG DATA between 1 → 3; ")


# --- its figures


def test_each_rank_alone_has_a_dot_for_each_pass(slow_rank: Run) -> None:
    others, named = plot(slow_rank, "alone-0", "compute").data
    assert (others["name"], named["name"]) == ("not named", "named above")
    assert len(others["x"]) == 5 * 6
    assert {round(x) for x in named["x"]} == {4}
    assert named["y"] == pytest.approx([1.9] * 6, rel=0.05)
    assert others["y"] == pytest.approx([1.0] * 30, rel=0.05)
    assert named["text"][0].startswith("<b>rank 4 (node-02)</b> pass 1<br>")
    assert list(figures_of(slow_rank)["alone-0"].plots[ALWAYS]) == [
        "compute",
        "copies to the device",
        "copies from the device",
    ]


def test_who_comes_last_stands_against_chance(slow_rank: Run) -> None:
    often = plot(slow_rank, "arrivals-0", "how often last")
    others, named = often.data
    assert (named["x"], named["y"]) == ([4], [100.0])
    assert named["error_y"]["arrayminus"] == pytest.approx([5.96], abs=0.01)  # Clopper-Pearson, 60 of 60
    assert others["y"] == [0.0] * 5
    assert often.layout["shapes"][-1]["y0"] == pytest.approx(100 / 6)
    later = plot(slow_rank, "arrivals-0", "how much later")
    assert later.data[1]["y"] == pytest.approx([3600.0], rel=0.02)


def test_groups_grow_until_the_slow_host_comes(slow_host: Run) -> None:
    kept, out = plot(slow_host, "groups-0", "all_reduce busbw").data
    assert kept["x"] == [4, 6, 8, 10]
    assert kept["y"] == pytest.approx([200.0] * 4, rel=0.05)
    assert out["x"] == [12]
    assert out["text"][0].endswith("with 4-5 on node-02")


def test_a_thousand_ranks_show_the_furthest_from_the_middle() -> None:
    run = make_search(hosts=40, ranks_per_host=8, passes=3, slow_ranks={317: 2.0}, sampled=0.002)
    compute = plot(run, "alone-0", "compute")
    assert sum(len(trace["x"]) for trace in compute.data) == 128 * 3
    assert compute.note == "The 128 of 320 ranks that are furthest from the middle."
    assert max(y for trace in compute.data for y in trace["y"]) == pytest.approx(2.0, rel=0.05)


# --- beside the other panels


def test_page_of_a_search_has_what_it_needs_and_no_more(slow_host: Run) -> None:
    page = page_of(slow_host)
    panels = {name for name in page.ids() if name in PANELS}
    assert panels == {"suspects", "links", "environment", "howto"}
    assert "Nothing measured" not in page.text
    assert "busbw is algbw" not in page.text
    assert "level rank, at once host, passes 6" in page.text


def test_ordinary_runs_show_nothing_of_it() -> None:
    report = report_of([make_run(sizes=SMALL)])
    assert PANELS["suspects"].build(report) is None
    assert PANELS["links"].build(report) is None


def test_search_and_sweep_on_one_page(slow_host: Run) -> None:
    page = page_of(make_run(sizes=SMALL), slow_host)
    assert {"suspects", "links", "verdict", "curves"} <= page.ids()
    verdicts = content("verdict", make_run(sizes=SMALL), slow_host)["verdicts"]
    assert [verdict["run"] for verdict in verdicts] == ["demo"]


def test_hostile_names_stay_text() -> None:
    run = make_search(names=[HOSTILE] * 4, slow_hosts={2: 4.0})
    html = render(report_of([run]))
    page = Page(html)
    assert "host <script>alert('1')</script>" in page.text
    assert not page.tagged("img")
    drawing = json.dumps(drawing_of(html))
    assert "alert" in drawing
    assert "<script" not in drawing
    assert "<img" not in drawing


def test_redacted_page_holds_no_host(tmp_path: Path) -> None:
    names = [f"gpu-alpha{index:02d}.dc7.example.com" for index in range(4)]
    run = make_search(names=names, slow_hosts={2: 4.0})
    redactor = Redactor([run])
    path = tmp_path / "page.html"
    write_report(redactor.runs, path, redactor=redactor)
    html = path.read_text("utf-8")
    shown = html + json.dumps(drawing_of(html))
    assert "alpha" not in shown
    assert "example.com" not in shown
    assert "Slow: host node-3" in Page(html).text
    assert "node-3" in json.dumps(drawing_of(html))


# --- the commands


@pytest.fixture
def folder(tmp_path: Path, slow_host: Run) -> Path:
    return written(tmp_path / "search", slow_host)


def written(path: Path, run: Run) -> Path:
    with RunFolder.create(path) as opened:
        opened.write_meta(run.meta)
        with opened.samples() as samples:
            samples.append(b"".join(encode_line(probe) for probe in run.probes))
    return path


def test_report_of_a_search_and_of_two_of_them(
    tmp_path: Path, folder: Path, healthy: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["ok"]) == ([], True)
    other, page = written(tmp_path / "other", healthy), tmp_path / "two.html"
    assert run_command(["report", str(folder), str(other), "--out", str(page)]) == 0
    text = Page(page.read_text("utf-8")).text
    assert "Slow: host node-02" in text
    assert "Nobody stands out" in text


def test_compare_refuses_a_search_in_one_line(
    tmp_path: Path, folder: Path, healthy: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path / "other", healthy)
    assert run_command(["compare", str(folder), str(other)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "is of ncclbench suspects and has no rows to compare: ncclbench report shows what it found"
    )


# --- who begins last in a sweep


def began(run: Run, lead_us: Callable[[np.random.Generator, int], Any]) -> str | None:
    """What is said where each sample's ranks begin so much before the last one ends; shape (ranks, n)."""
    generator = np.random.default_rng(3)
    run.units = {
        key: [replace(unit, total_us=5000.0 + lead_us(generator, unit.total_us.shape[1])) for unit in units]
        for key, units in run.units.items()
    }
    (source,) = report_of([run]).sources
    return last_to_begin(source, "gloo")


def sweep(**settings: Any) -> Run:
    return make_run(ops=("all_reduce", "broadcast"), sizes=SMALL, nranks=4, hosts=2, **settings)


def test_one_rank_always() -> None:
    def late(generator: np.random.Generator, n: int) -> Any:
        lead = generator.exponential(20.0, (4, n)) + 100.0
        lead[1] = 0.0
        return lead

    said = began(sweep(), late)
    # all_reduce alone: three sizes of 21 samples; who is last to a broadcast has its reason in its role.
    assert said is not None
    assert said.startswith(
        "rank 1 (node-00) nearly always, in 63 of 63 samples (100 %, 94 to 100 %; chance 25 %)"
    )


def test_one_host_always_one_rank_or_the_other() -> None:
    def late(generator: np.random.Generator, n: int) -> Any:
        lead = generator.exponential(20.0, (4, n)) + 100.0
        lead[2:] = generator.exponential(20.0, (2, n))
        return lead

    said = began(sweep(), late)
    assert said == "a rank of node-01 nearly always, in 63 of 63 samples (100 %, 94 to 100 %; chance 50 %)."


def test_nobody_in_particular() -> None:
    said = began(sweep(), lambda generator, n: generator.exponential(20.0, (4, n)))
    assert said == "nobody in particular, in 63 samples (chance 25 %)."


def test_isolated_samples_say_nothing() -> None:
    assert began(sweep(modes=("isolated",)), lambda generator, n: np.zeros((4, n))) is None


def test_page_of_a_sweep_says_who_begins_last() -> None:
    assert "Who begins last nobody in particular" in page_of(make_run(sizes=SMALL, nranks=4)).text
    assert "Who begins last" not in page_of(make_run(sizes=SMALL, modes=("isolated",))).text
