"""The page of a preset's folder: its answer with links to the steps, without names, and hostile files."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deciding import altered, preset, step, stored
from drill_fixtures import make_drill
from report_browsing import PHONE, Browser
from report_fixtures import HOSTILE, make_run
from report_reading import Page
from searching_fixtures import make_search

from ncclbench.cli.app import run as run_command
from ncclbench.report.panels import PANELS

NAMES = ("rack7-alpha", "rack7-beta", "rack7-gamma", "orange")
STEPS = (
    step("sweep", "sweep --ops all_reduce --require all_reduce>=400GB/s", status="bad", exit_code=1),
    step("suspects", message="host rack7-beta is slow"),
    step("drill", "drill --trials 1 --out /home/ada/drill"),
    step(
        "matrix", "matrix", status="not run", exit_code=None, seconds=0.0, message="", reason="no second host"
    ),
)


@pytest.fixture
def accepting(tmp_path: Path) -> Path:
    """A preset in which a host is slow; one host is called like a word."""
    folder = tmp_path / "ada-cluster"
    folder.mkdir()
    run = make_run(ops=("all_reduce",), sizes=(1 << 20,), modes=("back-to-back",), nranks=8, hosts=4)
    for host, name in zip(run.meta["environment"]["hosts"], NAMES, strict=True):
        host["name"] = name
    stored(folder / "sweep", run)
    search = make_search(hosts=4, ranks_per_host=2, slow_hosts={1: 4.0, 3: 4.0}, names=NAMES)
    stored(folder / "suspects", search)
    stored(folder / "drill", make_drill(trials=1, contract=False))
    for name in ("sweep", "suspects"):
        (folder / name / "report.html").write_text("the step's own page")
    return preset(folder, "acceptance", *STEPS)


def test_answer_stands_first_on_the_terminal_and_on_the_page(
    accepting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(accepting)]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Acceptance: do not accept rack7-beta, orange, because ")
    assert rest[-1] == f"report: {accepting / 'report.html'}"
    table = [line for line in rest if not line.startswith("#")]
    assert [line.split()[:2] for line in table[:2]] != []
    assert max(map(len, rest[:-1])) <= 120
    html = (accepting / "report.html").read_text("utf-8")
    page = Page(html)
    assert "Do not accept rack7-beta, orange Because host orange is 4" in page.text
    assert next(iter(PANELS)) == "decision"
    hrefs = [link["href"] for link in page.tagged("a") if (link.get("href") or "").startswith("./")]
    assert set(hrefs) == {"./sweep/report.html", "./suspects/report.html"}
    assert all((accepting / str(href)).is_file() for href in hrefs)
    for name in (*NAMES, "no second host", "ncclbench matrix"):
        assert name in page.text


def test_json_and_its_own_file(accepting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = accepting / "other.html"
    assert run_command(["report", str(accepting / "preset.json"), "--out", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["ok"], document["rows"]) == ("report", True, [])
    assert document["report"] == str(page)
    assert document["preset"] == "acceptance"
    assert document["decision"]["ok"] is False
    assert document["decision"]["answer"] in document["message"]
    assert [each["name"] for each in document["steps"]] == ["sweep", "suspects", "drill", "matrix"]
    assert {line["verdict"] for line in document["decision"]["lines"]} == {"pass", "fail", "unclear"}


def test_wrong_data_end_with_one(accepting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    altered(accepting / "sweep", lambda line: {**line, "wrong": 2} if line["type"] == "samples" else line)
    assert run_command(["report", str(accepting)]) == 1
    assert "WRONG DATA" in capsys.readouterr().out.splitlines()[0]


def test_page_without_names(accepting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(accepting), "--redact", "--json"]) == 0
    printed = capsys.readouterr().out
    page = accepting / "report-redacted.html"
    html = page.read_text("utf-8")
    for name in (*NAMES, "ada", socket.gethostname()):
        shown = Page(html).text
        assert f" {name} " not in shown.replace(",", " ").replace("(", " ")
        assert f'"{name}"' not in printed
    assert "rack7" not in html + printed
    assert "nodes-2" in html  # some hosts of the runs are called node-00
    assert "Redacted: " in html
    # What it would lead to stays with its owner.
    assert "./sweep/report.html" not in html
    assert not (accepting / "report.html").exists()


def test_preset_without_a_question_shows_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = preset(tmp_path / "mine", None, STEPS[3], name="training")
    assert run_command(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"report: {folder / 'report.html'}\n"
    page = Page((folder / "report.html").read_text("utf-8"))
    assert "Training: see its steps" in page.text
    assert "no second host" in page.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is no preset that can be read"),
        ("[]", "is no preset that can be read"),
        ('{"schema": 1}', "is no preset that can be read"),
        ("[" * 100_000, "is no preset that can be read"),
        ("folder: ..", "is no preset that can be read"),
        ("\x00\xff", "is no preset that can be read"),
        ({"schema": 7}, "has schema 7"),
        ({"decision": "divorce"}, "is no preset that can be read"),
        ({"steps": []}, "is no preset that can be read"),
        ({"steps": [{"name": "../..", "folder": "../..", "command": []}]}, "is no preset that can be read"),
        ({"steps": [{"name": "a", "folder": "b", "command": []}]}, "share names or folders"),
    ],
)
def test_hostile_files_end_with_one_line(
    accepting: Path, content: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = accepting / "preset.json"
    if isinstance(content, dict):
        content = json.dumps({**json.loads(file.read_text()), **content})
    file.write_bytes(content.encode("latin-1"))
    assert run_command(["report", str(accepting)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert said in line
    assert not (accepting / "report.html").exists()


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "preset.json")
    assert run_command(["report", str(tmp_path)]) == 2
    assert "preset.json is no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["sweep"], "name it alone"),
        (["--require", "80%peak"], "--require is for runs"),
        (["--compare-with", "sweep"], "--compare-with is for runs"),
    ],
)
def test_what_is_for_runs_is_refused(
    accepting: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(accepting / word) if word == "sweep" else word for word in more]
    assert run_command(["report", str(accepting), *words]) == 2
    assert said in capsys.readouterr().err


def hostile(folder: Path) -> Path:
    """Markup wherever a file can hold a text."""
    folder.mkdir()
    run = make_run(ops=("all_reduce",), sizes=(1 << 20,), modes=("back-to-back",), hosts=2, label=HOSTILE)
    for host in run.meta["environment"]["hosts"]:
        host["name"] = HOSTILE
    run.meta["preflight"] = [{"severity": HOSTILE, "ranks": [0], "what": HOSTILE, "mend": HOSTILE}]
    run.meta["health"] = [{"attempt": 0, "problems": [HOSTILE]}]
    stored(folder / "sweep", run)
    said = {"message": HOSTILE, "reason": HOSTILE, "status": "failed"}
    return preset(
        folder, "acceptance", step("sweep"), step("matrix", f"matrix {HOSTILE}", **said), name=HOSTILE
    )


def test_in_a_browser(accepting: Path, browser: Browser, tmp_path: Path) -> None:
    """Light, dark and narrow; links lead to the steps; nothing is run that a file holds."""
    assert run_command(["report", str(accepting)]) == 0
    for settings in ({}, {"color_scheme": "dark"}, PHONE):
        visit = browser.open(accepting / "report.html", **settings).drawn()
        visit.assert_whole("#decision [data-figure]")
        width = visit.page.viewport_size["width"]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.locator("#decision .headline").inner_text().startswith("Do not accept")
    visit.page.get_by_role("region", name="Steps").get_by_role("link", name="suspects").click()
    assert visit.page.url.endswith("/suspects/report.html")
    folder = hostile(tmp_path / "hostile")
    assert run_command(["report", str(folder)]) == 0
    visit = browser.open(folder / "report.html").drawn()
    assert visit.faults == []
    assert visit.page.locator("#decision img").count() == 0
    assert "<script>alert('1')</script>" in visit.page.locator("#decision table").first.inner_text()
    shutil.rmtree(folder)
