"""``report --redact``, ``report --compare-with`` and ``compare --redact``: from folders to what is sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import SMALL, make_run
from report_reading import Page, drawing_of
from test_redact_fuzz import searched, traces_in

from ncclbench.cli.app import run as run_command
from ncclbench.cli.redaction import tell_owner
from ncclbench.report.redact import Redactor
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_unit
from ncclbench.store.model import Run

HOST = "trn-b200-0017.hpc.example.com"


def stored(path: Path, **settings: Any) -> Path:
    """A run of jroe42 on a host of his, written as a sweep writes it."""
    settings = {"sizes": SMALL, "modes": ("isolated",), "label": f"{path.name} on trn-b200-0017"} | settings
    run: Run = make_run(path, **settings)
    run.meta["environment"]["hosts"][0] |= {"name": HOST, "boot_id": "x"}
    run.meta["environment"]["common"] = {
        "variables": {
            "SLURM_JOB_ID": "4829137",
            "MASTER_ADDR": "10.20.30.41",
            "NCCL_TOPO_FILE": "/gpfs/acme/t.xml",
        }
    }
    run.meta["message"] = "job 4829137 of jroe42@acme.example.com ended"
    run.meta["command"] = ["ncclbench", "sweep", "--out", str(path)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with RunFolder.create(path) as folder:
        folder.write_meta(run.meta)
        with folder.samples() as samples:
            for units in run.units.values():
                samples.append(b"".join(encode_unit(unit) for unit in units))
            samples.append(b'{"type":"torn')
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder whose name must not get out."""
    return tmp_path / "jroe42" / "acme"


def report(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    assert run_command(["report", *map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def section_of(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found is not None
    return " ".join(Page(found[0]).text.split())


# --- --redact


def test_redacted_page_stands_beside_the_other_and_holds_no_name(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored(home / "monday")
    assert run_command(["report", str(folder)]) == 0
    assert run_command(["report", str(folder), "--redact"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"report: {folder / 'report-redacted.html'}"
    assert "trn-b200" in (folder / "report.html").read_text("utf-8")
    page = (folder / "report-redacted.html").read_text("utf-8")
    assert searched(page) == []
    assert "<title>monday on node-1 · ncclbench report</title>" in page
    assert "Redacted: 1 host, 2 addresses, " in Page(page).text
    assert (folder / "run.json").read_text().count("trn-b200") > 0


def test_document_is_redacted_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, stored(home / "monday", arms=("gloo", "gloo#2")), "--redact")
    assert traces_in(json.dumps(document)) == []
    assert (document["run"], document["report"]) == ("run-1", "report-redacted.html")
    assert document["environment"]["hosts"][0]["name"] == "node-1"
    assert {row["run"] for row in (*document["rows"], *document["comparisons"])} == {"run-1"}
    assert document["problems"] == ["samples.jsonl: the last line is torn and was dropped"]


def test_owner_is_told_on_a_terminal_alone(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stored(home / "monday")
    assert run_command(["report", str(folder), "--redact"]) == 0
    assert "node-1" not in capsys.readouterr().err
    monkeypatch.setattr("ncclbench.cli.redaction.is_terminal", lambda stream: True)
    assert run_command(["report", str(folder), "--redact"]) == 0
    assert re.search(rf"^ncclbench: node-1 +{HOST}$", capsys.readouterr().err, re.MULTILINE)
    hosts = {"hosts": [{"name": f"rack-{index:03d}"} for index in range(100)], "ranks": []}
    run = make_run(sizes=SMALL)
    run.meta["environment"] = hosts
    tell_owner(Redactor([run]))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 41
    assert lines[-1].endswith(" more")


def test_several_runs_are_redacted_alike(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [stored(home / name) for name in ("monday", "tuesday")]
    document = report(capsys, *folders, "--redact", "--out", home / "both.html")
    assert document["report"] == "both.html"
    assert {row["run"] for row in document["rows"]} == {"run-1", "run-2"}
    page = (home / "both.html").read_text("utf-8")
    assert searched(page) == []
    names = {trace["name"] for trace in _first_plot(page, "latency")["data"]}
    assert names == {"monday on node-1 · gloo", "tuesday on node-1 · gloo"}


def _first_plot(page: str, figure: str) -> dict[str, Any]:
    plots = drawing_of(page)["figures"][figure]["plots"]
    return dict(next(iter(next(iter(plots.values())).values())))


def test_redacted_comparison_tells_no_name_in_page_table_or_answer(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = stored(home / "monday"), stored(home / "tuesday", seed=2)
    words = ["compare", str(one), str(other), "--redact", "--fail-on", "slower:50%", "--unclear", "pass"]
    files = {"--out": home / "page.html", "--csv": home / "rows.csv"}
    written = [str(word) for pair in files.items() for word in pair]
    assert run_command([*words, *written, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert traces_in(json.dumps(document)) == []
    assert (document["report"], document["csv"]) == ("page.html", "rows.csv")
    assert (document["base"]["runs"], document["new"]["runs"]) == (["run-1"], ["run-2"])
    assert document["base"]["label"] == "monday on node-1"
    assert searched(files["--out"].read_text("utf-8")) == []
    assert traces_in(files["--csv"].read_text("utf-8")) == []
    assert run_command(words) == 0
    assert traces_in("".join(capsys.readouterr())) == []


# --- --compare-with


def test_run_and_its_comparison_stand_on_one_page(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = stored(home / "tuesday", label="tuesday", slower={"gloo": 1.5}, noise=0.01)
    base = stored(home / "monday", label="monday", noise=0.01)
    document = report(capsys, new, "--compare-with", base)
    (compared,) = document["compared"]
    assert (compared["base"], compared["new"]) == ("monday", "tuesday")
    assert all(1.4 < row["ratio"] < 1.6 for row in compared["rows"])
    # One launch a side says nothing of the next one.
    assert {row["verdict"] for row in compared["rows"]} == {"unclear"}
    assert {row["run"] for row in document["rows"]} == {str(new), str(base)}
    page = (new / "report-of-2-runs.html").read_text("utf-8")
    said = section_of(page, "compared")
    assert "tuesday against monday" in said
    assert "6 unclear: these two launches differ: a verdict needs 4 a side" in said
    figures = drawing_of(page)["figures"]
    assert {"latency", "versus-0-times", "versus-0-ratios"} <= set(figures)
    reading = Page(page)
    drawn = [attributes["data-figure"] for attributes in reading.tagged("figure")]
    assert len(drawn) == len(set(drawn)) == len(figures)
    ids = [attributes["id"] for _, attributes in reading.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_page_of_the_same_run_alone_has_no_such_part(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored(home / "monday")
    document = report(capsys, folder)
    assert document["compared"] == []
    assert "compared" not in Page((folder / "report.html").read_text("utf-8")).ids()


def test_several_bases_each_get_a_comparison_and_each_run_comes_once(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = stored(home / "new", label="new", arms=("gloo", "nccl2"))
    one, other = stored(home / "one", label="one", seed=2), stored(home / "two", label="two", seed=3)
    words = (f"{new}", "--compare-with", one, "--compare-with", other, "--compare-with", f"{one}:gloo")
    document = report(capsys, *words, "--out", home / "page.html", "--redact")
    assert [entry["base"] for entry in document["compared"]] == ["one", "two", "one:gloo"]
    assert list(dict.fromkeys(row["run"] for row in document["rows"])) == ["run-1", "run-2", "run-3"]
    page = (home / "page.html").read_text("utf-8")
    assert searched(page) == []
    assert "versus-2-ratios" in drawing_of(page)["figures"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one", "two", "--compare-with", "more"], "--compare-with compares one RUN, not 2: name one"),
        (["one", "--compare-with", "nowhere"], "is not a run"),
        (["one", "--compare-with", "one"], "is on both sides"),
        (["one", "--compare-with", "more"], "nothing can be compared: BASE has 4 ranks, NEW 2"),
        (["one", "--compare-with", ""], "--compare-with is empty"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(
    words: list[str],
    said: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, nranks in (("one", 2), ("two", 2), ("more", 4)):
        stored(home / name, nranks=nranks)
    monkeypatch.chdir(home)
    assert run_command(["report", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert list(home.glob("**/*.html")) == []
