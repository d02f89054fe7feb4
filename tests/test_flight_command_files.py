"""What ``ncclbench flight`` takes beside dumps and what it writes: hosts, page, trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flying import job, write_json

from ncclbench.cli.app import run


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Eight ranks, of which rank 5 does not come."""
    write_json(tmp_path / "dumps", job(nranks=8, absent=[5]))
    return tmp_path / "dumps"


def answered(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, dict[str, Any]]:
    code = run(["flight", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def hosts_of(found: dict[str, Any]) -> list[str | None]:
    return [one["host"] for one in found["ranks"]]


def test_list_of_nodes(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answered(capsys, dumps, "--hosts", "gpu[01-02]", "--ranks-per-host", "4")
    assert code == 1
    assert hosts_of(found) == ["gpu01"] * 4 + ["gpu02"] * 4
    assert found["findings"][0]["hosts"] == ["gpu02"]


def test_ranks_over_hosts_without_a_number(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answered(capsys, dumps, "--hosts", "gpu[01-04]")
    assert hosts_of(found) == [f"gpu0{1 + rank // 2}" for rank in range(8)]


def test_hostfile_with_slots(dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("# ours\nlarge slots=6\nsmall slots=2\n", encoding="utf-8")
    _, found = answered(capsys, dumps, "--hosts", file)
    assert hosts_of(found) == ["large"] * 6 + ["small"] * 2


def test_host_is_named_in_the_first_lines(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["flight", str(dumps), "--hosts", "gpu[01-02]"]) == 1
    assert "gpu02" in "\n".join(capsys.readouterr().out.splitlines()[:2])


def test_ranks_without_a_host_are_told(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["flight", str(dumps), "--hosts", "gpu[01-02]", "--ranks-per-host", "3"]) == 1
    assert "# no host known of ranks 6-7: --ranks-per-host says how many each has" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "gpu[1-3]"], "--ranks-per-host"),
        (["--hosts", "no/such/file"], "no file"),
        (["--hosts", "hosts.txt"], "no file"),
        (["--hosts", "gpu[9-"], "gpu[9-"),
        (["--ranks-per-host", "8"], "--hosts"),
        (["--world-size", "4"], "rank 7"),
        (["--out", "."], "is a folder"),
        (["--out", "no/page.html"], "no folder"),
        (["--out", "same", "--trace", "same"], "one file"),
        (["--trace", "t.json", "--redact"], "--redact"),
    ],
)
def test_requests_that_cannot_be(
    dumps: Path,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["flight", str(dumps), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dumps"]


@pytest.mark.parametrize("option", ["--out", "--trace"])
def test_dump_is_never_replaced(dumps: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = dumps / "rank0.json"
    before = file.read_bytes()
    assert run(["flight", str(dumps), option, str(file)]) == 2
    assert f"{file} is there and no" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_page_and_trace_are_replaced_by_their_like(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    for _ in range(2):
        code, found = answered(capsys, dumps, "--out", page, "--trace", trace)
        assert code == 1
        assert (found["report"], found["trace"]) == (str(page), str(trace))
    assert "did not come" in page.read_text("utf-8")
    assert run(["flight", str(dumps), "--out", str(trace)]) == 2


def test_trace_is_one_that_viewers_read(dumps: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert run(["flight", str(dumps), "--trace", str(trace)]) == 1
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    operations = [event for event in events if event["ph"] == "X"]
    assert len(operations) >= 8 * 11
    assert all(isinstance(event["ts"], int | float) and event["dur"] >= 0 for event in operations)
    assert all("pid" in event and "tid" in event and event["name"] for event in operations)


def test_names_are_replaced_on_page_and_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = [("step", "/home/mallory/secret-project/train.py", 88)]
    write_json(tmp_path / "dumps", job(absent=[2], frames=frames))
    page = tmp_path / "page.html"
    words = (tmp_path / "dumps", "--hosts", "frontier0417,frontier0418", "--out", page, "--redact")
    code, found = answered(capsys, *words)
    assert code == 1
    texts = json.dumps(found) + page.read_text("utf-8")
    for name in ("frontier", "mallory", "secret-project"):
        assert name not in texts
    assert hosts_of(found) == ["node-1", "node-1", "node-2", "node-2"]
    assert found["report"] == "page.html"


def test_folder_of_a_run_is_its_dumps(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}", encoding="utf-8")
    dumps.rename(folder / "flight")
    code, found = answered(capsys, folder)
    assert (code, found["verdict"], found["refused"]) == (1, "stuck", [])
