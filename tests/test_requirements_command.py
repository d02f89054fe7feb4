"""``--require`` through the real command: process groups of gloo, exit codes, JSON, the page and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hardware_fixtures import busbw_of, gpu_run
from report_reading import Page
from sweeping import Outcome, sweep

from ncclbench.cli.requiring import hold
from ncclbench.hardware.requirements import parse_requirement
from ncclbench.stats.rows import run_rows

GIB = 1 << 30
# Three epochs of a few operations: two ranks always take longer than a nanosecond and less than a minute.
_BRIEF = ("--sizes", "8,64K", "--nproc-per-node", "2", "-n", "6", "--epochs", "3", "--timeout", "30s")
_SURE = "all_reduce@64K<=60s"
# So little that an interval over three epochs, however wide, lies above it.
_SURE_RATE = "all_reduce@64K>=0.00001MB/s"
_NEVER = "all_reduce@8<=0.001us"
_NO_PEAK = "90%peak"


def swept(tmp_path: Path, *requirements: str, options: tuple[str, ...] = ("--json",)) -> Outcome:
    typed = [word for text in requirements for word in ("--require", text)]
    return sweep(*_BRIEF, "--out", tmp_path / "run", *typed, *options)


def test_all_met_ends_with_0_and_everything_tells_so(tmp_path: Path) -> None:
    outcome = swept(tmp_path, _SURE, _SURE_RATE)
    document = outcome.document
    assert outcome.code == 0, outcome.err
    assert (document["ok"], document["require"]) == (True, "pass")
    assert document["message"].endswith("requirements PASS (2 pass)")
    first, second = document["requirements"]
    row = next(row for row in document["rows"] if row["nbytes"] == 65536 and row["mode"] == "isolated")
    assert (first["requirement"], first["answer"], first["value"]) == (_SURE, "pass", row["median_us"])
    assert (first["ci_low"], first["ci_high"]) == (row["ci_low_us"], row["ci_high_us"])
    assert (second["mode"], second["unit"], second["bound"]) == ("back-to-back", "GB/s", pytest.approx(1e-8))
    assert "PASS: " in outcome.err, "under --json standard output is the document's"
    page = Page((tmp_path / "run/report.html").read_text("utf-8"))
    sections = [attributes["id"] for attributes in page.tagged("section")]
    assert sections[:2] == ["requirements", "verdict"]
    assert "All 2 requirements met" in page.text


def test_not_met_ends_with_1_after_the_table(tmp_path: Path) -> None:
    outcome = swept(tmp_path, _NEVER, _SURE, options=())
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    failed, passed = lines[-2:]
    assert failed.startswith(f"FAIL: {_NEVER}: all_reduce float32 sum 8 isolated on gloo: time ")
    assert failed.endswith("above 0.001 us")
    assert passed.startswith(f"PASS: {_SURE}: ")
    assert "Traceback" not in outcome.err
    # The run is whole and can be held against something else without measuring again.
    again = sweep("--resume", tmp_path / "run", "--require", _SURE, "--json")
    assert (again.code, again.document["require"]) == (0, "pass")
    bad = sweep("--resume", tmp_path / "run", "--require", _NEVER, "--json")
    assert (bad.code, bad.document["require"], bad.document["ok"]) == (1, "fail", False)
    page = Page((tmp_path / "run/report.html").read_text("utf-8"))
    assert "Requirement not met" in page.text
    zero = sweep("--resume", tmp_path / "run", "--require", _NEVER, "--exit-zero", "--json")
    assert (zero.code, zero.document["require"]) == (0, "fail")


@pytest.mark.full
def test_unclear_counts_as_one_says(tmp_path: Path) -> None:
    outcome = swept(tmp_path, _NO_PEAK, "all_reduce@2G>=1GB/s")
    document = outcome.document
    assert (outcome.code, document["require"]) == (1, "fail")
    assert [entry["answer"] for entry in document["requirements"]] == ["unclear", "unclear"]
    assert "no reference: measured on the CPU" in document["requirements"][0]["message"]
    lenient = sweep("--resume", tmp_path / "run", "--require", _NO_PEAK, "--unclear", "pass", "--json")
    assert (lenient.code, lenient.document["require"]) == (0, "pass")
    assert lenient.document["requirements"][0]["answer"] == "unclear"


@pytest.mark.full
def test_nothing_required_nothing_said(tmp_path: Path) -> None:
    outcome = swept(tmp_path)
    assert outcome.code == 0
    assert (outcome.document["requirements"], outcome.document["require"]) == ([], None)
    assert "requirement" not in outcome.document["message"]
    page = Page((tmp_path / "run/report.html").read_text("utf-8"))
    assert "requirements" not in page.ids()


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("--require", "all_reduce@1G>450"), "write 'all_reduce@1G>=450GB/s'"),
        (("--require", "allreduces>=4GB/s"), "did you mean 'all_reduce'?"),
        (("--require", _SURE, "--require", "fast"), "--require 'fast' is not a requirement"),
        (("--require", _SURE, "--unclear", "maybe"), "--unclear"),
    ],
)
def test_a_request_that_cannot_be_read_measures_nothing(
    typed: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    outcome = sweep(*_BRIEF, "--out", tmp_path / "run", *typed)
    assert outcome.code == 2
    assert says in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_every_run_must_meet_it() -> None:
    """What report does with several runs: one that is slow decides, and the line names it."""
    runs = []
    for name, busbw in (("fast", 480.0), ("slow", 300.0)):
        run = gpu_run(sizes=(GIB,), time_us=busbw_of(busbw), folder=Path(f"results/{name}"))
        runs.append((run, run_rows(run)))
    params: dict[str, Any] = {"require": [parse_requirement("90%peak")], "unclear": "fail"}
    assert hold(runs[:1], params).code == 0
    held = hold(runs, params)
    assert (held.code, held.answer, held.judged[0].rows) == (1, "fail", 4)
    (line,) = held.lines(None)
    assert line.startswith("FAIL: 90%peak: slow: ")
    assert hold(runs, params | {"exit_zero": True}).code == 0
