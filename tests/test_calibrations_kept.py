"""Calibrations kept per machine: found again, replaced, and left out where damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from calibrating import document_of, entry

from ncclbench.errors import MeasurementError
from ncclbench.store import calibrations


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of calibrations, a new one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = calibrations.kept_folder()
    assert folder.is_relative_to(tmp_path)
    return folder


HERE = {"hosts": [{"name": "node-00"}, {"name": "node-01"}]}


def test_a_calibration_is_found_by_its_machine(data: Path) -> None:
    document = document_of(entry(), hosts=["node-01", "node-00"], nranks=16)
    path = calibrations.keep(document)
    assert path.parent == data
    assert calibrations.find(HERE, 16, "gloo") == document, "whatever the order of hosts"
    assert calibrations.find(HERE, 8, "gloo") is None
    assert calibrations.find(HERE, 16, "nccl2") is None
    assert calibrations.find({"hosts": [{"name": "node-00"}]}, 16, "gloo") is None


def test_the_newest_wins_and_leaves_nothing_else_behind(data: Path) -> None:
    for budget_s in (5.0, 20.0):
        calibrations.keep(document_of(entry(), budget_s=budget_s))
    found = calibrations.find({"hosts": [{"name": "node-00"}]}, 2, "gloo")
    assert found is not None
    assert found["budget_s"] == 20.0
    assert len(list(data.iterdir())) == 1


def test_this_host_finds_what_it_had_a_part_in(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node-01")
    assert calibrations.find_here(16, "gloo") is None
    older = document_of(entry(), hosts=["node-01"], nranks=16, created="2026-11-01T00:00:00+00:00")
    newer = document_of(entry(), hosts=["node-00", "node-01"], nranks=16)
    others = document_of(entry(), hosts=["node-07"], nranks=16, created="2027-01-01T00:00:00+00:00")
    for document in (newer, older, others):
        calibrations.keep(document)
    assert calibrations.find_here(16, "gloo") == newer


def damaged(document: dict[str, Any]) -> dict[str, bytes]:
    def text(**fields: Any) -> bytes:
        return json.dumps(document | fields).encode()

    return {
        "torn": text()[:200],
        "empty": b"",
        "not JSON": b"\x00\xff",
        "a list": b"[]",
        "a newer schema": text(schema=2),
        "a wrong type": text(comparisons="many"),
        "a missing key": json.dumps({key: document[key] for key in document if key != "same"}).encode(),
        "no number": text(budget_s=math.nan),
        "another machine": text(nranks=4),
        "too deep": b"[" * 200_000,
    }


@pytest.mark.parametrize("what", damaged(document_of(entry())))
def test_a_damaged_file_is_left_out_with_a_line(what: str, data: Path) -> None:
    path = calibrations.keep(document_of(entry()))
    path.write_bytes(damaged(document_of(entry()))[what])
    lines: list[str] = []
    assert calibrations.find({"hosts": [{"name": "node-00"}]}, 2, "gloo", lines.append) is None
    (line,) = lines
    assert str(path) in line
    assert "\n" not in line
    # It is written anew by the next calibration.
    calibrations.keep(document_of(entry()))
    assert calibrations.find({"hosts": [{"name": "node-00"}]}, 2, "gloo") is not None


def test_a_folder_that_takes_no_file_is_one_line(data: Path) -> None:
    data.parent.mkdir(parents=True)
    data.write_text("a file where the folder should be")
    with pytest.raises(MeasurementError, match="XDG_DATA_HOME"):
        calibrations.keep(document_of(entry()))
    lines: list[str] = []
    assert calibrations.find({"hosts": [{"name": "node-00"}]}, 2, "gloo", lines.append) is None
    assert calibrations.find_here(2, "gloo", lines.append) is None
    assert len(lines) == 1


def test_hosts_of_any_name_make_a_file_name(data: Path) -> None:
    names = ["../../etc/passwd", "Rechner-ü", "x" * 300, ""]
    for name in names:
        calibrations.keep(document_of(entry(), hosts=[name], backend="my/back end"))
    assert len(list(data.iterdir())) == len(names)
    for name in names:
        found = calibrations.find({"hosts": [{"name": name}]}, 2, "my/back end")
        assert found is not None
        assert found["hosts"] == [name]
