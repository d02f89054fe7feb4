"""The page as a whole: its parts, its safety, its size, its file, several runs in one."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from report_fixtures import HOSTILE, SIZES, SMALL, make_calibration, make_run, skip
from report_reading import Page, content, drawing_of, figures_of, page_of

from ncclbench.errors import MeasurementError
from ncclbench.plan.model import Arm
from ncclbench.report import panels as panels_package
from ncclbench.report.build import render, report_of, write_report
from ncclbench.report.packing import packed, packed_plotlyjs
from ncclbench.report.panels import PANELS
from ncclbench.report.panels.spread import MOST_POINTS, thinned
from ncclbench.store.model import Run

ROOT = Path(__file__).resolve().parent.parent

# The bar for a page of 48 to 100 rows.
MOST_BYTES = 2_200_000


# --- the table of panels


def test_every_panel_file_is_in_the_table() -> None:
    modules = {name for _, name, _ in pkgutil.iter_modules(panels_package.__path__)} - {"panel"}
    found = {import_module(f"{panels_package.__name__}.{name}").PANEL.name for name in modules}
    assert found == set(PANELS)


def test_panels_come_in_order_and_have_their_templates() -> None:
    entries = list(PANELS.values())
    orders = [panel.order for panel in entries]
    assert orders == sorted(set(orders))
    for panel in entries:
        assert (ROOT / "ncclbench" / "report" / "templates" / panel.template).is_file()
        assert panel.title


def test_page_and_navigation_hold_every_panel_that_has_something_to_show() -> None:
    run = make_run(ops=["all_reduce"], arms=("nccl-legacy", "nccl2"), calibration=make_calibration())
    skip(run, 0, "too small")
    page = page_of(run)
    # Nothing was asked, required, compared with another run, imported, searched or made to fail.
    absent = ("requirements", "compared", "imported", "suspects", "links", "drill", "decision")
    # Its one group has all ranks, its arms have no settings, and its cases come from no job.
    kinds = ("overlap", "p2p", "transport", "group-costs", "groups", "settings", "calls")
    flight = ("flight", "flight-timeline", "flight-ranks")
    expected = [name for name in PANELS if name not in (*absent, *kinds, *flight)]
    assert set(expected) <= page.ids()
    links = [attributes["href"] for attributes in page.tagged("a")]
    assert links == [f"#{name}" for name in expected]


def test_panel_with_nothing_to_show_is_in_neither() -> None:
    page = page_of(make_run(sizes=SMALL))
    assert "comparison" not in page.ids()
    assert "unmeasured" not in page.ids()
    assert "calibration" not in page.ids()
    assert "#comparison" not in [attributes["href"] for attributes in page.tagged("a")]


# --- nothing from a run is markup


def hostile_run() -> Run:
    """A run in which every text that a file can hold is hostile."""
    run = make_run(sizes=SMALL, arms=("nccl2", HOSTILE), hosts=2, label=HOSTILE)
    skip(run, 0, HOSTILE)
    run.statuses[run.plan.cases[1].case.key, HOSTILE] = ("failed", HOSTILE)
    del run.units[run.plan.cases[1].case.key, HOSTILE]
    run.meta["message"] = HOSTILE
    run.meta["created"] = HOSTILE
    run.meta["command"] = ["ncclbench", HOSTILE]
    run.meta["arms"]["nccl2"]["implementation"] = HOSTILE
    run.meta["preflight"] = [{"severity": HOSTILE, "ranks": [0], "what": HOSTILE, "mend": HOSTILE}]
    run.meta["attempts"][0]["launcher"] = HOSTILE
    for host in run.meta["environment"]["hosts"]:
        host["name"] = HOSTILE
        host[HOSTILE] = HOSTILE
    run.meta["environment"]["ranks"][0]["device"] = HOSTILE
    run.problems = [HOSTILE]
    run.meta["calibration"] = make_calibration((HOSTILE, 8, HOSTILE, 0.02)) | {
        "created": HOSTILE,
        "hosts": [HOSTILE],
        "backend": HOSTILE,
        "advice": [HOSTILE],
    }
    return run


def test_hostile_texts_are_text() -> None:
    html = render(report_of([hostile_run(), make_run(sizes=SMALL)]))
    page = Page(html)
    assert page.tagged("img") == []
    scripts = page.tagged("script")
    assert [script.get("id") for script in scripts] == ["rows-data", "drawing", "plotlyjs", None]
    assert len({script["nonce"] for script in scripts}) == 1
    # All white space out of both, the line separators among it.
    assert "".join(page.text.split()).count("".join(HOSTILE.split())) > 20


def test_hostile_texts_cannot_end_the_script_element_they_are_data_in() -> None:
    html = render(report_of([hostile_run()]))
    rows = re.search(r'<script[^>]*id="rows-data"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert rows is not None
    assert not re.search("[<>&\u2028\u2029]", rows[1])
    data = json.loads(rows[1])
    assert HOSTILE in data["values"][0]


def test_plotly_is_given_no_markup_but_ours() -> None:
    figures = drawing_of(render(report_of([hostile_run()])))["figures"]
    plots = [
        plot
        for figure in figures.values()
        for options in figure["plots"].values()
        for plot in options.values()
    ]
    for plot in plots:
        texts = json.dumps([plot["data"], plot["layout"]], ensure_ascii=False)
        assert set(re.findall(r"</?([a-z]+)", texts)) <= {"b", "br"}
    assert "&lt;script&gt;" in json.dumps(plots)


def test_page_allows_no_request_and_only_its_own_scripts() -> None:
    page = page_of(make_run(sizes=SMALL))
    (policy,) = [
        meta["content"] for meta in page.tagged("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'nonce-{page.tagged('script')[0]['nonce']}'"
    assert "connect-src" not in rules
    for tag, attributes in page.elements:
        for name in ("src", "href", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)


# --- size, speed, memory


def test_page_of_a_usual_run_keeps_its_size() -> None:
    report = report_of([make_run(sizes=SIZES)])
    assert len(report.rows) == 96
    assert len(render(report).encode()) < MOST_BYTES


def test_report_imports_nothing_slow_when_plotlyjs_is_cached(tmp_path: Path) -> None:
    packed_plotlyjs()
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from pathlib import Path\n"
        "from report_fixtures import make_run\n"
        "from ncclbench.report.build import write_report\n"
        f"write_report([make_run(sizes=(8, 64), arms=('a', 'b'))], Path({str(tmp_path / 'r.html')!r}))\n"
        "slow = ('torch', 'pandas', 'plotly', 'numba', 'scipy.stats')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"


def test_points_on_the_page_are_bounded() -> None:
    run = make_run(sizes=SIZES, epochs=4, iters=800)
    (figure,) = [figure for figure in content("spread", run)["figures"] if figure.name == "samples"]
    points = [
        len(trace["x"])
        for options in figure.plots.values()
        for plot in options.values()
        for trace in plot.data
        if trace["marker"].get("symbol") != "line-ns-open"
    ]
    assert 5_000 < sum(points) <= MOST_POINTS
    notes = {plot.note for options in figure.plots.values() for plot in options.values()}
    assert any("of 800 samples drawn" in note for note in notes)


def test_every_family_keeps_a_case_where_not_all_can_be_drawn() -> None:
    dtypes = ("float32", "float64", "float16", "bfloat16")
    run = make_run(ops=("all_reduce", "broadcast", "all_gather"), dtypes=dtypes, epochs=8, iters=200)
    (figure,) = [figure for figure in content("spread", run)["figures"] if figure.name == "samples"]
    assert len(figure.plots) == 12
    note = next(iter(figure.plots["all_reduce/float32/sum/None/world/False/True/2"].values())).note
    assert re.search(r"The \d+ cases that spread least are not in the list", note)


def test_thinning_keeps_ends_and_median() -> None:
    times = np.random.default_rng(0).lognormal(3, 1, 5001)
    kept = thinned(times, 101)
    assert len(kept) == 101
    assert kept[0] == pytest.approx(times.min(), rel=1e-4)
    assert kept[-1] == pytest.approx(times.max(), rel=1e-4)
    assert kept[50] == pytest.approx(np.median(times), rel=1e-4)
    assert thinned(times[:7], 101) == pytest.approx(times[:7], rel=1e-4)


# --- packing


def test_packed_text_comes_back_and_cannot_end_a_script() -> None:
    text = "</script><!-- " + "".join(map(chr, range(1, 3000))) + os.urandom(4000).hex()
    unpacked = gzip.decompress(base64.b85decode(packed(text).replace(",", "<"))).decode()
    assert unpacked == text
    assert "<" not in packed(text)


def test_plotlyjs_is_cached_per_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = packed_plotlyjs()
    (file,) = (tmp_path / "ncclbench").iterdir()
    assert re.fullmatch(r"plotly-[\d.]+\.js\.gz\.b85", file.name)
    assert (
        gzip.decompress(base64.b85decode(first.replace(",", "<")))[:40]
        .decode()
        .startswith("/**\n* plotly.js")
    )
    file.write_text("from the cache")
    assert packed_plotlyjs() == "from the cache"


def test_cache_that_cannot_be_used_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert len(packed_plotlyjs()) > 1_000_000


# --- the file


def test_report_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report([make_run(sizes=SMALL)], path)
    assert path.read_text("utf-8").rstrip().endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_place_that_takes_no_file_is_a_clear_line(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"report\.html"):
        write_report([make_run(sizes=SMALL)], tmp_path / "missing" / "report.html")


# --- several runs


def test_runs_stand_side_by_side_under_their_labels() -> None:
    runs = [
        make_run(Path("results/a"), sizes=SMALL, label="hopper"),
        make_run(Path("results/b"), sizes=SMALL, label="hopper", nranks=4),
        make_run(Path("results/c"), sizes=SMALL, label=None),
    ]
    runs[2].meta["environment"]["hosts"][0]["driver"] = "600.1"
    report = report_of(runs)
    assert [source.label for source in report.sources] == ["hopper", "hopper#2", "c"]
    assert {row["run"] for row in report.rows} == {"hopper", "hopper#2", "c"}
    latency = figures_of(*runs)["latency"]
    names = [
        trace["name"]
        for trace in latency.plots["all_reduce/float32/sum/None/world/False/True/2"]["isolated"].data
    ]
    assert list(dict.fromkeys(names)) == ["hopper · gloo", "c · gloo"]
    differences = {entry.key: entry.values for entry in content("environment", *runs)["between_runs"]}
    assert differences["driver"] == [("590.44", "hopper and hopper#2"), ("600.1", "c")]
    assert differences["ranks"] == [("2", "hopper and c"), ("4", "hopper#2")]
    assert page_of(*runs).text.count("rows measured, data right") == 3


def test_arm_ids_shared_by_runs_are_not_confused() -> None:
    fast = make_run(Path("results/a"), sizes=SMALL, label="a", arms=("x", "y"))
    slow = make_run(Path("results/b"), sizes=SMALL, label="b", arms=("x",), slower={"x": 3.0})
    slow.plan = replace(slow.plan, arms=(Arm("x", "x"),))
    peaks = content("verdict", fast, slow)["peaks"]
    assert [peak["series"] for peak in peaks] == ["a · x", "a · y", "b · x"] * 2
