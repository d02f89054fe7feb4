"""``ncclbench import``: from files to a run folder, a page and an exit code."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncclbench.cli.app import run as run_command
from ncclbench.store.reader import load_run

DATA = Path(__file__).parent / "data" / "import"
V1, V3, CYCLES = DATA / "nccl-json-v1.json", DATA / "nccl-json-v3-per-iter.json", DATA / "rccl.csv"
COMMAND = (sys.executable, "-m", "ncclbench", "import")

LOG = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1234 on      node0 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1234 on      node0 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                         out-of-place                       in-place
#       size     count   type  redop   root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B) (elements)                         (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576    262144  float    sum     -1    50.00   20.97   20.97      0    52.00   20.16   20.16      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 20.565
#
# Collective test concluded: all_reduce_perf
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "hopper.log"
    file.write_text(LOG)
    return file


def imported(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """The document of an import that ends with ``code``."""
    assert run_command(["import", *map(str, arguments), "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_log_becomes_a_run_with_page_and_summary(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run_command(["import", str(log), "--out", str(folder), "--label", "hopper"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == (
        f"{log}: nccl-tests, all_reduce (from the text), 2 ranks (from the header): 1 row taken, 0 rejected; "
        "average 20.565 GB/s fits the rows"
    )
    row = r"1048576 +262144 +float32 +sum +- +50\.00 +20\.97 +20\.97 +0 +52\.00 +20\.16 +20\.16 +0"
    assert re.search(row, said.out)
    assert f"run: {folder}" in said.out
    assert said.err == ""
    run = load_run(folder)
    assert (run.is_imported, run.meta["label"], run.meta["status"]) == (True, "hopper", "complete")
    assert [arm.id for arm in run.plan.arms] == ["nccl-tests"]
    assert (run.plan.nranks, len(run.printed)) == (2, 2)
    assert "hopper" in (folder / "report.html").read_text("utf-8")
    assert (folder / "summary.csv").read_text().count("\n") == 3


def test_the_document_has_a_row_for_each_half_and_an_entry_for_each_file(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = imported(capsys, log, "--out", tmp_path / "run")
    assert (document["command"], document["ok"], document["run"]) == ("import", True, str(tmp_path / "run"))
    out_of_place, in_place = document["rows"]
    assert (out_of_place["in_place"], in_place["in_place"]) == (False, True)
    assert (out_of_place["clock"], out_of_place["n"], out_of_place["epochs"]) == ("imported", None, None)
    assert (out_of_place["median_us"], out_of_place["mean_rank_us"]) == (50.0, 50.0)
    assert (out_of_place["ci_low_us"], out_of_place["status"]) == (None, "ok")
    (entry,) = document["files"]
    told = {
        "file": str(log),
        "format": "nccl-tests",
        "rows_taken": 1,
        "rows_rejected": 0,
        "problems": [],
        "op": "all_reduce",
        "op_from": "text",
        "nranks": 2,
        "nranks_from": "header",
        "average_busbw_GBs": 20.565,
        "average_fits": True,
        "gpu": "NVIDIA H100 80GB HBM3",
        "hosts": ["node0"],
        "nhosts": 1,
    }
    assert {name: entry[name] for name in told} == told
    assert load_run(tmp_path / "run").meta["imported"]["files"] == [entry]


def test_devices_become_the_environment(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = imported(capsys, V1, "--out", tmp_path / "run")["environment"]
    assert [host["name"] for host in environment["hosts"]] == ["node0", "node1"]
    assert environment["common"]["gpu"]["name"] == "NVIDIA H100 80GB HBM3"
    assert environment["common"]["nccl"] == "2.28.9"
    assert environment["common"]["variables"]["NCCL_IB_HCA"] == "mlx5"
    places = [(rank["rank"], rank["host"], rank["local_rank"]) for rank in environment["ranks"]]
    assert places[7:9] == [(7, 0, 7), (8, 1, 0)]
    # Files of two machines are no environment of one run.
    assert imported(capsys, V1, log, "--out", tmp_path / "both")["environment"] is None


def test_no_secret_of_the_environment_is_written(tmp_path: Path) -> None:
    assert run_command(["import", str(V1), "--out", str(tmp_path / "run")]) == 0
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    assert b"mlx5" in written
    for secret in (b"abc123", b"hf_abcdefgh", b"/home/someone"):
        assert secret not in written


def test_the_same_case_again_is_another_arm_and_a_cycle_a_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "again.json"
    copy.write_bytes(V1.read_bytes())
    rows = imported(capsys, V1, V3, copy, CYCLES, "--out", tmp_path / "run")["rows"]
    found = {(row["arm"], row["op"]) for row in rows}
    assert found == {
        ("nccl-tests", "all_reduce"),
        ("nccl-tests#2", "all_to_all"),  # on one host of the two
        ("nccl-tests#3", "all_reduce"),
        ("rccl-tests", "all_reduce"),
    }
    cycles = [row["repeat"] for row in rows if row["arm"] == "rccl-tests" and row["nbytes"] == 1024]
    assert cycles == [0, 0, 1, 1]


def test_a_file_that_cannot_be_read_does_not_spoil_the_others(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "log.gz"
    bad.write_bytes(b"\x1f\x8b\x08")
    document = imported(capsys, bad, log, "--out", tmp_path / "run")
    assert [entry["rows_taken"] for entry in document["files"]] == [0, 1]
    assert "gunzip" in document["files"][0]["problems"][0]["reason"]
    assert {row["file"] for row in document["rows"]} == {1}
    assert "1 file not read" in document["message"]
    assert run_command(["import", str(bad), str(log), "--out", str(tmp_path / "again")]) == 0
    assert "gunzip" in capsys.readouterr().err


def test_where_nothing_is_imported_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    template = tmp_path / "template.txt"
    template.write_text(LOG.replace("50.00", "XX.XX").replace("52.00", "XX.XX"))
    document = imported(capsys, template, code=2)
    assert (document["ok"], document["rows"], document["run"]) == (False, [], None)
    assert document["files"][0]["rows_rejected"] == 1
    assert "placeholders" in document["message"]
    assert [file.name for file in tmp_path.iterdir()] == ["template.txt"]
    assert run_command(["import", str(template)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith("ncclbench: error: nothing to import in ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.log"], "No such file"),
        (["."], "is a folder"),
        (["/dev/null"], "is a device"),
        (["hopper.log", "hopper.log"], "named twice"),
        (["hopper.log", "--format", "ncl-tests"], "did you mean 'nccl-tests'"),
        (["hopper.log", "--op", "all_reduse"], "did you mean 'all_reduce'"),
        (["hopper.log", "--label", ""], "--label is empty"),
        (["hopper.log", "--out", "used"], "already holds a run"),
        (["hopper.log", "--out", "hopper.log"], "is a file, not a folder"),
        (["used"], "a run already"),
        (["used/run.json"], "no format that is known"),
        ([], "Missing argument"),
    ],
)
def test_wrong_requests_end_with_one_line(
    arguments: list[str],
    said: str,
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["import", "hopper.log", "--out", "used"]) == 0
    capsys.readouterr()
    assert run_command(["import", *arguments]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert said in line


def test_wrong_data_is_a_bad_answer(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(LOG.replace("20.97      0", "20.97      5").replace(": 0 OK", ": 1 FAILED"))
    assert run_command(["import", str(log), "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().out
    assert "WRONG DATA in 1 row" in said
    document = imported(capsys, log, "--out", tmp_path / "again", code=1)
    assert [(row["status"], row["wrong"]) for row in document["rows"]] == [("wrong", 5), ("ok", 0)]
    assert document["ok"] is False


def test_the_folder_is_named_by_time_and_label(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {Path(imported(capsys, log, "--label", "H100 node")["run"]).name for _ in range(2)}
    assert len(names) == 2
    assert all(re.fullmatch(r"\d{8}-\d{6}-H100-node(\.2)?", name) for name in names)


def test_the_op_may_be_given_by_either_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = DATA / "param-first.txt"
    for number, name in enumerate(("all_reduce", "all_reduce_perf")):
        document = imported(capsys, first, "--op", name, "--out", tmp_path / str(number))
        assert {(row["op"], row["op_from"]) for row in document["rows"]} == {("all_reduce", "option")}


def test_markup_and_control_characters_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x\x1b[31m.json"
    file.write_text(V1.read_text().replace('"node0"', '"<script>alert(1)</script>"'))
    assert run_command(["import", str(file), "--out", str(tmp_path / "run"), "--label", "<img src=x>"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_standard_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "-", "--out", str(tmp_path / "run"), "--json"],
        input=LOG,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"][0]["file"] == "-"
    empty = subprocess.run([*COMMAND, "-"], input="", capture_output=True, text=True, timeout=100)
    assert (empty.returncode, empty.stderr) == (2, "ncclbench: error: standard input is empty\n")


def test_torch_is_never_loaded(log: Path, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from ncclbench.cli.app import run\n"
        "code = run(['import', *sys.argv[1:]])\n"
        "sys.exit(code or ('torch was loaded' if 'torch' in sys.modules else 0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(log), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_report_takes_an_imported_run(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert run_command(["import", str(log), "--out", str(folder)]) == 0
    capsys.readouterr()
    assert run_command(["report", str(folder), "--json"]) == 0
    assert [row["median_us"] for row in json.loads(capsys.readouterr().out)["rows"]] == [50.0, 52.0]


# Damage.


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A file with one or two kinds of damage: cut, shuffled, flipped, stretched, mixed with bytes."""
    for _ in range(rng.randint(1, 2)):
        place, other = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                content = content[:place]
            case 1:
                lines = content.splitlines(keepends=True)
                rng.shuffle(lines)
                content = b"".join(lines)
            case 2:
                flipped = bytearray(content)
                for _ in range(rng.randint(1, 30)):
                    if flipped:
                        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
                content = bytes(flipped)
            case 3:
                content = content[:place] + content[place:other] * rng.randint(2, 50) + content[other:]
            case 4:
                content = content[:place] + rng.randbytes(rng.randint(1, 2000)) + content[place:]
            case 5:
                content = content[:place] + b"1" * 200_000 + content[place:]
        content = content[:1_000_000]
    return content


@pytest.mark.full
def test_mutated_files_end_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0, 1 for wrong data or 2, one line where it is 2, and a run that can be read where it is not."""
    rng = random.Random(4)
    sources = [file.read_bytes() for file in sorted(DATA.iterdir())] + [LOG.encode()]
    file = tmp_path / "file"
    codes = []
    for number in range(120):
        file.write_bytes(mutated(rng.choice(sources), rng))
        folder = tmp_path / str(number)
        codes.append(run_command(["import", str(file), "--out", str(folder)]))
        said = capsys.readouterr()
        assert codes[-1] in (0, 1, 2), (number, said.err)
        if codes[-1] == 2:
            assert not folder.exists()
            assert said.err.count("ncclbench: error:") == 1
        else:
            assert load_run(folder).printed
    assert set(codes) >= {0, 2}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_mutated_files_through_the_command(tmp_path: Path) -> None:
    """Fifty, each in a process of its own that may take a gigabyte and not more."""
    rng = random.Random(5)
    sources = [file.read_bytes() for file in sorted(DATA.iterdir())] + [(LOG * 20).encode()] * 10
    for number in range(50):
        file, folder = tmp_path / f"{number}.log", tmp_path / f"run{number}"
        content = mutated(rng.choice(sources), rng)
        file.write_bytes(content + rng.choice((b"", b"1 ")) * 10_000_000 if number % 10 == 0 else content)
        done = subprocess.run(
            ["sh", "-c", 'ulimit -d 1048576; exec "$@"', "sh", *COMMAND, str(file), "--out", str(folder)],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode in (0, 1, 2), (number, done.stderr)
        assert "Traceback" not in done.stderr, number
        assert folder.exists() == (done.returncode != 2)
