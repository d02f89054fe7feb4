"""``ncclbench flight`` as a user meets it: processes, what they say, and the codes they end with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from flying import job, write_json, write_pickles
from report_fixtures import HOSTILE

ROOT = Path(__file__).resolve().parent.parent
FRAMES = (
    ("all_reduce", "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3000),
    ("step", "/job/train.py", 88),
)


def flight(*arguments: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ncclbench", "flight", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        timeout=60,
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The document that it printed, which is all that it printed there."""
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("write", [write_json, write_pickles])
def test_healthy_job(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "dumps", job())
    done = flight(tmp_path / "dumps")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("HEALTHY: ")
    assert done.stderr == ""


def test_rank_that_did_not_come(tmp_path: Path) -> None:
    paths = write_pickles(tmp_path, job(absent=[2], frames=FRAMES))
    done = flight(*paths)
    assert done.returncode == 1, done.stdout + done.stderr
    answer, *lines = done.stdout.splitlines()
    assert answer.startswith("STUCK: ")
    assert "rank 2" in answer
    assert (
        "rank 2 did not come; its last is all_reduce 11 of default_pg, completed, at /job/train.py:88 step"
        in (line.strip() for line in lines)
    )
    assert any(line.startswith("1  stuck") and "all_reduce 12" in line for line in lines)
    assert any("ranks 0-1, 3 came" in line for line in lines)


def test_document_of_a_hang(tmp_path: Path) -> None:
    write_json(tmp_path / "dumps", job(absent=[2]))
    done = flight(tmp_path / "dumps", "--hosts", "gpu[1-2]", "--json")
    assert done.returncode == 1
    found = document(done)
    assert (found["schema"], found["command"], found["ok"], found["run"]) == (1, "flight", False, None)
    assert found["verdict"] == "stuck"
    first = found["findings"][0]
    assert first["kind"] == "stuck"
    assert (first["group"], first["sequence"], first["collective"]) == ("0", 12, "all_reduce")
    assert (first["missing_ranks"], first["arrived_ranks"]) == ([2], [0, 1, 3])
    assert (first["mismatched_ranks"], first["unknown_ranks"]) == ([], [])
    assert first["hosts"] == ["gpu2"]
    assert first["why"]
    assert "where" in first
    assert found["missing_dumps"] == []
    assert found["wrapped_ranks"] == []
    assert found["dump_versions"] == ["2.10"]
    assert found["refused"] == []
    assert found["nranks"] == 4
    assert [(one["rank"], one["host"], one["part"]) for one in found["ranks"]] == [
        (0, "gpu1", "came"),
        (1, "gpu1", "came"),
        (2, "gpu2", "did not come"),
        (3, "gpu2", "came"),
    ]
    assert [one["sequence"] for one in found["ranks"]] == [12, 12, 11, 12]
    assert (found["report"], found["trace"]) == (None, None)


@pytest.mark.parametrize(
    ("other", "said"),
    [({"op": "broadcast"}, "broadcast"), ({"sizes": ((2048,),)}, "2048"), ({"dtype": "Half"}, "Half")],
)
def test_rank_that_issued_another_operation(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    write_json(tmp_path / "dumps", job(other={1: other}))
    done = flight(tmp_path / "dumps", "--json")
    assert done.returncode == 1
    found = document(done)
    assert found["verdict"] == "mismatch"
    assert found["findings"][0]["kind"] == "mismatch"
    assert found["findings"][0]["mismatched_ranks"] == [1]
    assert said.lower() in found["findings"][0]["why"].lower()
    words = flight(tmp_path / "dumps").stdout
    assert words.startswith("MISMATCH: ")
    assert "rank 1 issued another" in words


def test_missing_dump_is_told_and_makes_it_unclear(tmp_path: Path) -> None:
    dumps = job(absent=[2])
    del dumps[2]
    write_json(tmp_path / "dumps", dumps)
    done = flight(tmp_path / "dumps", "--json")
    found = document(done)
    assert found["missing_dumps"] == [2]
    assert found["verdict"] in ("stuck", "unclear")
    assert found["findings"][0]["unknown_ranks"] == [2]
    assert done.returncode == 1
    assert "# no dump of rank 2: what was done there is not known" in flight(tmp_path / "dumps").stdout


def test_world_size_tells_of_dumps_that_no_other_names(tmp_path: Path) -> None:
    write_json(tmp_path / "dumps", job(nranks=2))
    assert document(flight(tmp_path / "dumps", "--json"))["missing_dumps"] == []
    found = document(flight(tmp_path / "dumps", "--world-size", "4", "--json"))
    assert (found["nranks"], found["missing_dumps"]) == (4, [2, 3])


def test_unclear_counts_as_asked(tmp_path: Path) -> None:
    write_json(tmp_path / "dumps", job(nranks=2))
    asked = (tmp_path / "dumps", "--world-size", "4", "--json")
    done = flight(*asked)
    if document(done)["verdict"] != "unclear":
        pytest.fail("two of four ranks tell nothing of the others")
    assert done.returncode == 1
    passed = flight(*asked, "--unclear", "pass")
    assert (passed.returncode, document(passed)["ok"]) == (0, True)


def test_exit_zero(tmp_path: Path) -> None:
    write_json(tmp_path / "dumps", job(absent=[2]))
    done = flight(tmp_path / "dumps", "--exit-zero", "--json")
    assert (done.returncode, document(done)["ok"]) == (0, False)


def test_refused_file_beside_others(tmp_path: Path) -> None:
    paths = write_json(tmp_path / "dumps", job(absent=[2]))
    bad = tmp_path / "dumps" / "rank9.json"
    bad.write_text("{ this is no dump", encoding="utf-8")
    done = flight(*paths, bad, "--json")
    found = document(done)
    assert [Path(one["source"]).name for one in found["refused"]] == ["rank9.json"]
    assert found["refused"][0]["reason"]
    assert found["verdict"] == "stuck"
    assert f"# not read: {bad}: " in flight(*paths, bad).stdout


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\x00\xff\xfe", b"cos\nsystem\n(S'touch pwned'\ntR.", b"[" * 100_000]
)
def test_file_that_is_no_dump_ends_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rank0").write_bytes(content)
    done = flight("rank0", "--json", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ncclbench: error: ")
    assert len(done.stderr.splitlines()) == 1
    found = document(done)
    assert (found["ok"], found["command"]) == (False, "flight")
    assert "rank0" in found["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["rank0"]


def test_nothing_there(tmp_path: Path) -> None:
    for argument in ("missing", "."):
        done = flight(argument, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("ncclbench: error: ")


def test_hostile_names_stay_on_their_line(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\nHEALTHY: all is well\r" + HOSTILE
    frames = [("step\x1b[31m", f"/job/{evil}.py", 1)]
    dumps = job(absent=[2], group=("0", evil), op=f"all_reduce{evil}", frames=frames)
    write_pickles(tmp_path / "dumps", dumps)
    hosts = tmp_path / "hosts"
    hosts.write_text("gpu-\x1b[31m-1\ngpu2\n", encoding="utf-8")
    done = flight(tmp_path / "dumps")
    assert done.returncode in (1, 2)
    shown = done.stdout + done.stderr + flight(tmp_path / "dumps", "--hosts", hosts).stdout
    assert not set(shown) & {chr(code) for code in (*range(10), *range(11, 32), 127, 0x2028, 0x2029)}
    assert not any(line.startswith("HEALTHY") for line in shown.splitlines())


def test_torch_is_not_imported(tmp_path: Path) -> None:
    write_json(tmp_path / "dumps", job(absent=[2]))
    words: Sequence[str] = ("flight", "dumps", "--out", "page.html", "--trace", "trace.json")
    script = (
        "import sys\nfrom ncclbench.cli.app import run\n"
        f"code = run({list(words)!r})\n"
        "assert code == 1, code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "page.html").is_file()
    assert (tmp_path / "trace.json").is_file()
