"""``ncclbench env`` for real: every rank answers, alone, under torchrun, and with one rank set otherwise."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sweeping import Outcome, run, sweep

ENV = (sys.executable, "-m", "ncclbench", "env")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    "NCCL_FOO_TOKEN": "plain-looking-words",
    "HF_TOKEN": "hf_QQQQQQQQQQQQQQQQQQQQ",
    "GLOO_PROXY": "http://user:hunter2@proxy.example:8080",
}


def on_two_ranks(*command: str) -> list[Outcome]:
    """The command as each of two ranks, of which rank 1 has TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    own = ({"RANK": "0"}, {"RANK": "1", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda variables: run(*command, env={**job, **variables}), own))


def test_two_ranks_describe_themselves() -> None:
    outcome = run(*ENV, "--json", "--nproc-per-node", "2", env={"NCCL_ALGO": "Ring"})
    document = outcome.document
    assert outcome.code == 0
    assert (document["command"], document["ok"], document["run"]) == ("env", True, None)
    environment = document["environment"]
    assert [(rank["rank"], rank["host"], rank["local_rank"]) for rank in environment["ranks"]] == [
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert len({rank["pid"] for rank in environment["ranks"]}) == 2
    assert environment["hosts"][0]["name"] == os.uname().nodename
    assert environment["common"]["torch"]
    assert environment["common"]["variables"]["NCCL_ALGO"] == "Ring"
    assert environment["differences"] == []
    assert all(finding["severity"] == "warning" for finding in document["preflight"])


def test_findings_come_first_and_a_pipe_gets_plain_text() -> None:
    outcome = run(*ENV, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "CUDA_LAUNCH_BLOCKING": "1"})
    assert outcome.code == 0
    assert outcome.out.startswith("# Findings\n")
    assert outcome.out.index("unset TORCH_DISTRIBUTED_DEBUG") < outcome.out.index("# Hosts")
    assert "unset CUDA_LAUNCH_BLOCKING" not in outcome.out  # gloo does not care
    assert outcome.out.isascii()
    assert outcome.out.splitlines()[-1].startswith("2 ranks on 1 host: ")


def test_a_terminal_gets_the_same_tables_with_findings_in_colour() -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    with subprocess.Popen([*ENV, "--nproc-per-node", "1"], stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed: everything is said
                break
        assert process.wait(60) == 0
    os.close(ours)
    text = shown.decode()
    assert text.startswith("# Findings\r\n  severity  ranks  what")
    assert "\x1b[33m  warning   0" in text
    assert "# Hosts\r\n  host " in text
    assert text.splitlines()[-1].startswith("1 rank on 1 host: ")


@pytest.mark.full
def test_under_torchrun_only_rank_0_speaks() -> None:
    outcome = run(*TORCHRUN, "-m", "ncclbench", "env", "--json")
    assert outcome.code == 0, outcome.err
    assert [rank["rank"] for rank in outcome.document["environment"]["ranks"]] == [0, 1]
    assert outcome.document["environment"]["common"]["variables"]["WORLD_SIZE"] == "2"


def test_a_setting_on_one_rank_only_is_a_difference_and_an_error() -> None:
    speaking, silent = on_two_ranks(*ENV, "--json")
    assert (speaking.code, silent.code, silent.out) == (1, 1, "")
    document = speaking.document
    assert not document["ok"]
    assert document["environment"]["differences"] == [
        {
            "what": "TORCH_DISTRIBUTED_DEBUG",
            "values": [{"value": None, "ranks": [0]}, {"value": "DETAIL", "ranks": [1]}],
        }
    ]
    finding = document["preflight"][0]
    assert (finding["severity"], finding["ranks"]) == ("error", [1])
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in finding["what"]


def test_exit_zero_keeps_the_answer_and_changes_the_code() -> None:
    speaking, silent = on_two_ranks(*ENV, "--json", "--exit-zero")
    assert not speaking.document["ok"]
    assert (speaking.code, silent.code) == (0, 0)


def test_a_wrong_request_is_one_line_and_a_document() -> None:
    outcome = run(*ENV, "--json", "--nproc-per-node", "0")
    assert outcome.code == 2
    assert not outcome.document["ok"]
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.full
def test_against_a_run_of_this_machine_only_what_was_changed_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = ("--backends", "gloo", "--sizes", "64", "--modes", "isolated", "-n", "2", "--epochs", "1")
    assert sweep(*small, "--nproc-per-node", "2", "--out", folder).code == 0
    command = (*ENV, "--nproc-per-node", "2", "--against", folder)
    same = run(*command, "--json")
    assert same.code == 0, same.err
    assert same.document["changes"] == []
    changed = run(*command, env={"NCCL_ALGO": "Ring"})
    assert changed.out.startswith("# Changes\n")
    assert [line.split() for line in changed.out.splitlines()[1:3]] == [
        ["what", "then", "now"],
        ["NCCL_ALGO", "(none)", "Ring"],
    ]
    assert changed.out.splitlines()[-1].endswith(f"; 1 change since {folder}")


@pytest.mark.parametrize("text", [None, "{}", '{"schema": 1, "plan": {}}'])
def test_against_what_is_no_run_nothing_is_started(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    outcome = run(*ENV, "--json", "--against", tmp_path)
    assert (outcome.code, outcome.document["environment"]) == (2, None)
    assert len(outcome.err.splitlines()) == 1
    assert str(tmp_path) in outcome.err


@pytest.mark.parametrize("answer", ["--json", "--exit-zero"])
def test_secrets_are_not_shown(answer: str) -> None:
    outcome = run(*ENV, answer, env=SECRETS)
    assert outcome.code == 0
    assert "NCCL_FOO_TOKEN" in outcome.out
    assert not [value for value in SECRETS.values() if value in outcome.out + outcome.err]
    assert "hunter2" not in outcome.out


def test_secrets_are_nowhere_in_a_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    outcome = sweep(
        *("--sizes", "64", "--modes", "isolated", "-n", "2", "--epochs", "1", "--out", folder), env=SECRETS
    )
    assert outcome.code == 0, outcome.err
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert b"NCCL_FOO_TOKEN" in written[folder / "run.json"]
    for path, content in written.items():
        assert not [value for value in SECRETS.values() if value.encode() in content], path
