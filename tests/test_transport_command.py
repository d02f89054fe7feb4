"""``ncclbench transport`` as users run it: its document, its folder, how it ends, what it refuses."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from searching import under_launcher
from sweeping import Outcome, Running, lines, wait_until
from transporting import COMMAND, SMALL, TINY, transport

import ncclbench.cli.transport as cli
from ncclbench.cli.app import run
from ncclbench.store.reader import load_run
from ncclbench.store.transfers import TransferTimes

pytest.importorskip("torch.distributed._transport", reason="torch < 2.15 has no transports")

WAYS = ("broadcast", "broadcast-flat", "send-recv", "cpu-write", "cpu-read")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("transport") / "run"
    return transport("--weights", "4M", "--epochs", "3", "-n", "3", "--out", folder, "--json")


def test_every_way_has_a_row_with_right_bytes_and_times_that_fit_together(measured: Outcome) -> None:
    assert measured.code == 0, measured.err
    answer = measured.document
    assert (answer["command"], answer["ok"]) == ("transport", True)
    assert answer["weights"]["nbytes"] == 4 << 20
    assert answer["weights"]["tensors"] > 9
    rows = {row["way"]: row for row in answer["rows"]}
    assert {way for way, row in rows.items() if row["status"] == "ok"} >= set(WAYS)
    for way in WAYS:
        row = rows[way]
        one_sided = way.startswith("cpu-")
        assert (row["kind"], row["arm"]) == (("one-sided", None) if one_sided else ("two-sided", "gloo"))
        assert (row["wrong"], row["n"], row["epochs"], row["generators"]) == (0, 3, 3, 2)
        assert row["GBs"] == pytest.approx((4 << 20) / row["total_us"] / 1e3)
        assert row["total_ci_low_us"] < row["total_ci_high_us"]
        assert row["trainer_us"] <= row["frozen_us"]
        assert (row["stale_us"] is not None) == one_sided
        assert (row["ratio"] is None) == (way == "broadcast")
    # What one-sided means: a write costs the generator one look, a read costs the trainer one word.
    assert rows["cpu-write"]["generator_us"] < 0.1 * rows["cpu-write"]["trainer_us"]
    assert rows["cpu-read"]["trainer_us"] < 0.1 * rows["cpu-read"]["generator_us"]
    assert rows["cpu-write"]["steps"] > 0
    assert rows["cpu-read"]["torn"] == 0


def test_small_messages_have_times_for_every_size(measured: Outcome) -> None:
    latency = measured.document["latency"]
    assert {row["way"] for row in latency} >= set(WAYS) - {"broadcast-flat"}
    for row in latency:
        assert row["nbytes"] in (8, 64, 512, 4096)
        assert 0 < row["total_us"] < 1e6


def test_every_visit_is_a_line_of_the_run_and_the_report_is_there(measured: Outcome) -> None:
    answer = measured.document
    loaded = load_run(Path(answer["run"]))
    assert (loaded.meta["kind"], loaded.meta["status"]) == ("transport", "complete")
    visits = [line for line in loaded.results if isinstance(line, TransferTimes)]
    assert len([line for line in visits if line.way in WAYS]) == 3 * len(WAYS)
    first = [next(line.way for line in visits if line.epoch == epoch) for epoch in range(3)]
    assert len(set(first)) > 1, "the order changes from epoch to epoch"
    assert Path(answer["report"]).stat().st_size > 10_000


def test_words_for_a_person(tmp_path: Path) -> None:
    done = transport(*SMALL, "--ways", "broadcast,cpu-write", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert done.out.startswith("# 4M of weights in ")
    assert "not the same operation" in done.out
    assert done.out.splitlines()[-1].startswith("one-sided cpu-write to 2 generators takes ")


def test_weights_of_a_file_and_one_generator(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text("3\n1000x7 fp32\n64K\n")
    options = ("--weights", file, "--generators", "1", "--epochs", "1", "-n", "1", "-w", "0")
    done = transport(*options, "--ways", "send-recv,cpu-read", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert done.document["weights"] == {"nbytes": 3 + 28000 + 65536, "tensors": 3}
    assert [row["generators"] for row in done.document["rows"]] == [1, 1]
    assert [row["wrong"] for row in done.document["rows"]] == [0, 0]
    assert [row["ratio"] for row in done.document["rows"]] == [None, None]


@pytest.mark.full
def test_under_a_launcher_ranks_have_other_parents_and_move_the_same_bytes(tmp_path: Path) -> None:
    words = ("transport", "--weights", "1M", "--epochs", "2", "-n", "2", "--json", "--out", tmp_path / "run")
    first, *others = under_launcher(3, *words)
    assert first.code == 0, first.err
    assert [other.code for other in others] == [0, 0]
    assert [other.out for other in others] == ["", ""]
    rows = [row for row in first.document["rows"] if row["status"] == "ok"]
    assert {row["way"] for row in rows} >= set(WAYS)
    assert {row["wrong"] for row in rows} == {0}


# --- how it ends


def started(folder: Path) -> Running:
    return Running(*COMMAND, "--weights", "16M", "--epochs", "1000", "-n", "4000", "--out", folder)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_signals_keep_what_was_measured_and_leave_nobody(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    with started(folder) as running:
        wait_until(lambda: lines(folder) >= 4, "the first visits")
        running.descendants()
        running.signal(number)
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == code
    loaded = load_run(folder)
    assert any(isinstance(line, TransferTimes) for line in loaded.results)
    if number != signal.SIGKILL:
        assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"


def test_a_rank_that_dies_is_named_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(folder) as running:
        generator = running.workers(3)[2]
        wait_until(lambda: lines(folder) >= 4, "the first visits")
        generator.kill()
        done = running.wait()
        assert running.left_behind(within_s=2.0) == []
    assert done.code == 3
    assert "rank 2" in done.err.splitlines()[-1]
    assert "was killed by SIGKILL" in done.err
    assert "until then" not in done.err
    assert any(isinstance(line, TransferTimes) for line in load_run(folder).results)


# --- what it refuses


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--weights", "lots"), "neither a size nor a file"),
        (("--weights", "60T"), "ranks with"),
        (("--ways", "brodcast"), "did you mean 'broadcast'?"),
        (("--ways", "broadcast,broadcast"), "twice"),
        (("--backends", "glo"), "did you mean 'gloo'?"),
        (("--backends", "nccl2"), "needs a GPU and none is here"),
        (("--generators", "0"), "out of range"),
        (("--generators", "3", "--nproc-per-node", "3"), "give one of them"),
        (("--nproc-per-node", "1"), "take 2 to"),
        (("--epochs", "0"), "out of range"),
        (("-n", "none"), "is not a whole number"),
        (("--timeout", "soon"), "--timeout"),
    ],
)
def test_bad_requests_are_one_line(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["transport", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_weights_that_memory_does_not_hold_are_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "available_bytes", lambda: 5 << 30)
    assert run(["transport", "--weights", "1G"]) == 2
    assert capsys.readouterr().err == (
        "ncclbench: error: 3 ranks with 1 GiB of weights, twice each, need 6 GiB of memory, this host has "
        "5 GiB available: lower --weights or --generators\n"
    )


def test_without_nixl_and_with_nothing_else_asked_for_it_says_how_to_get_it(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(hiding(tmp_path, "nixl"))}
    done = transport("--ways", "nixl-write", "--out", tmp_path / "run", env=env)
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        "ncclbench: error: no way can be had here: nixl-write: needs the package nixl: "
        "pip install 'ncclbench[nixl]'"
    )


def test_a_torch_without_transports_measures_the_two_sided_ways(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(hiding(tmp_path, "torch.distributed._transport"))}
    options = (*TINY, "--ways", "broadcast,cpu-write")
    done = transport(*options, "--out", tmp_path / "run", "--json", env=env)
    assert done.code == 0, done.err
    broadcast, write = done.document["rows"]
    assert (broadcast["status"], write["status"]) == ("ok", "unavailable")
    assert write["reason"].startswith("needs torch >= 2.15 with torch.distributed._transport")


def hiding(folder: Path, module: str) -> Path:
    """A folder for PYTHONPATH with which a module cannot be found, even where it is installed."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    return folder / "site"
