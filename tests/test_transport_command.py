"""``ncclbench transport`` as users run it: its document, its folder, how it ends, what it refuses."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from searching import under_launcher
from sweeping import Outcome, Running, lines, wait_until
from transporting import COMMAND, SMALL, hiding, transport

import ncclbench.cli.transport as cli
from ncclbench.errors import Interrupted, MeasurementError
from ncclbench.store.reader import load_run
from ncclbench.store.transfers import TransferTimes
from ncclbench.supervise.blame import RankState, hung

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
    assert "# A one-sided transfer and a two-sided one are not the same operation." in done.out
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


def test_what_may_be_a_transfer_longer_than_the_timeout_says_so() -> None:
    def last_words(text: str) -> str:
        return str(cli._with_hint(MeasurementError(text), 60.0))

    states = [
        RankState(rank, "host", 4 if rank else 5, True, "in moving the weights, pass 1") for rank in (0, 1)
    ]
    hint = "; if one transfer of such weights may take so long, raise --timeout"
    for text in (
        hung(states, 2, 60.0).text,
        "rank 1 on host: TimeoutError: version 3 did not come in 60 s, in moving the weights, pass 1",
        "rank 1 on host: Timed out waiting 60000ms for recv operation, in moving the weights, pass 2",
    ):
        assert last_words(text) == text + hint
    for text in ("rank 0 on host was killed by SIGKILL in moving the weights, pass 1", "disk full"):
        assert last_words(text) == text
    assert cli._with_hint(Interrupted("ended by SIGINT", 2), 60.0).exit_code == 130


def test_without_nixl_and_with_nothing_else_asked_for_it_says_how_to_get_it(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(hiding(tmp_path, "nixl"))}
    done = transport("--ways", "nixl-write", "--out", tmp_path / "run", env=env)
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        "ncclbench: error: no way can be had here: nixl-write: needs the package nixl: "
        "pip install 'ncclbench[nixl]'"
    )
