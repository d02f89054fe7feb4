"""What ``ncclbench transport`` refuses in one line, with any torch, and what an older torch leaves of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from transporting import TINY, hiding, transport

import ncclbench.cli.transport as cli
from ncclbench.cli.app import run


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
        "ncclbench: error: 3 ranks with 1.0 GiB of weights, twice each, need 6.0 GiB of memory, this host "
        "has 5.0 GiB available: lower --weights or --generators\n"
    )


def test_a_torch_without_transports_measures_the_two_sided_ways(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(hiding(tmp_path, "torch.distributed._transport"))}
    options = (*TINY, "--ways", "broadcast,cpu-write")
    done = transport(*options, "--out", tmp_path / "run", "--json", env=env)
    assert done.code == 0, done.err
    broadcast, write = done.document["rows"]
    assert (broadcast["status"], write["status"]) == ("ok", "unavailable")
    assert write["reason"].startswith("needs torch >= 2.15 with torch.distributed._transport")
