"""Redacted pages of imported runs: names of logs go, and what looks like a secret in runs from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from importing import make_printed, write_imported
from report_fixtures import SMALL, make_run

from ncclbench.cli.app import run as run_command
from ncclbench.environment.variables import HIDDEN
from ncclbench.errors import MeasurementError
from ncclbench.report.contents import page_texts
from ncclbench.report.redact import Redactor
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

TOKEN = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
COMMIT = "3bf863cc0a1b2c3d4e5f60718293a4b5c6d7e8f9"


def files_of(*names: str) -> dict[str, Any]:
    """What an import of such files leaves in run.json."""
    problems = [{"line": 3, "reason": f"{names[0]} is cut, {names[0].rpartition('/')[2]} too"}]
    return {
        "imported": {
            "files": [{"file": name, "format": "nccl-tests", "problems": problems} for name in names]
        },
        "command": ["ncclbench", "import", *names, "--op", "all_reduce", "--json"],
    }


def imported(folder: Path, *names: str, **meta: Any) -> Path:
    return write_imported(folder, [make_printed(1 << 20, 50.0)], **files_of(*names), **meta)


@pytest.mark.parametrize("name", ["acme-prod-h100.log", "logs/acme-prod-h100.log", "../acme-prod-h100.log"])
@pytest.mark.parametrize("command", ["report", "compare", "report --compare-with"])
def test_the_name_of_a_log_is_nowhere_on_a_redacted_page(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = imported(tmp_path / "one", name, message="see other/ACME-PROD-H100.log")
    other = imported(tmp_path / "two", "b.log", label="two", created="2026-02-03T04:05:06+00:00")
    page = tmp_path / "page.html"
    words = {
        "report": ["report", str(one)],
        "compare": ["compare", str(one), str(other)],
        "report --compare-with": ["report", str(one), "--compare-with", str(other)],
    }[command]
    assert run_command([*words, "--redact", "--out", str(page), "--json"]) == 0
    shown = [*page_texts(page.read_text("utf-8")), capsys.readouterr().out]
    assert not [text for text in shown if "acme" in text.casefold()]
    if command == "report":
        assert any("ncclbench import path-1 --op all_reduce --json" in text for text in shown)


def test_a_log_that_is_named_in_the_command_alone_is_known_to_the_search(tmp_path: Path) -> None:
    run = load_run(imported(tmp_path / "run", "x.log"))
    run.meta["command"] = ["ncclbench", "import", "--format", "nccl-tests", "acme-prod", "--label", "hopper"]
    redactor = Redactor([run])
    (shown,) = redactor.runs
    assert shown.meta["command"] == [*run.meta["command"][:4], "path-2", "--label", "hopper"]
    with pytest.raises(MeasurementError, match="name of a path"):
        redactor.check(["of acme-prod"])


def test_a_log_called_like_its_tool_or_a_word_does_not_rename_them(tmp_path: Path) -> None:
    run = load_run(imported(tmp_path / "run", "nccl-tests", "time"))
    (shown,) = Redactor([run]).runs
    assert shown.plan.arms[0].id == "nccl-tests"
    assert sorted(shown.meta["command"][2:4]) == ["path-1", "path-2"]


def test_a_host_written_in_two_ways_is_one_host() -> None:
    run = make_run(Path("results/demo"), sizes=SMALL, hosts=2, nranks=2)
    for host, name in zip(run.meta["environment"]["hosts"], ("GPUZETA17", "gpuzeta17.lab.corp"), strict=True):
        host["name"] = name
    run.meta["message"] = "gpuzeta17 and GpuZeta17 and GPUZETA17.lab.corp"
    (shown,) = Redactor([run]).runs
    assert [host["name"] for host in shown.meta["environment"]["hosts"]] == ["node-1", "node-1"]
    assert shown.meta["message"] == "node-1 and node-1 and node-1"


def edited() -> Run:
    """A run that somebody has written secrets into."""
    run = make_run(Path("results/demo"), sizes=SMALL)
    run.meta["label"] = f"with {TOKEN} inside"
    run.meta["message"] = "login with password: hunter2zork failed"
    run.meta["preflight"] = [
        {"severity": "warning", "ranks": [0], "what": f"token={TOKEN}", "mend": f"torch {COMMIT} differs"}
    ]
    run.meta["arms"]["gloo"]["reason"] = "https://jane:hunter2@git.example.com/x"
    variables = {"FOO_API_KEY": "hunter2zork", "NCCL_ALGO": "RING"}
    run.meta["environment"]["common"] = {"torch_git": COMMIT, "variables": variables}
    run.meta["imported"] = {"files": [{"file": "x.log", "failure": f"died with {TOKEN}", "problems": []}]}
    return run


def test_what_looks_like_a_secret_is_left_out_wherever_it_stands() -> None:
    redactor = Redactor([edited()])
    (shown,) = redactor.runs
    text = json.dumps(shown.meta)
    assert "hunter2" not in text
    assert "ghp_" not in text
    assert shown.meta["label"] == f"with {HIDDEN} inside"
    assert shown.meta["environment"]["common"]["variables"] == {"FOO_API_KEY": HIDDEN, "NCCL_ALGO": "RING"}
    # The commit of torch's build tells nobody.
    assert shown.meta["environment"]["common"]["torch_git"] == COMMIT
    assert shown.meta["preflight"][0]["mend"] == f"torch {COMMIT} differs"
    with pytest.raises(MeasurementError, match="looks like a secret"):
        redactor.check([f"and {TOKEN} again"])
