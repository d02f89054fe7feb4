"""``ncclbench list``, in text and JSON, and why something is not available."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner
from ncclbench.kernels import KINDS

from ncclbench.cli import list as listing
from ncclbench.tables.backends import BACKENDS
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.topologies import TOPOLOGIES


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets which torch and how many GPUs the machine has."""

    def has(torch: tuple[int, int] | None, ngpus: int) -> None:
        monkeypatch.setattr(listing, "_torch_version", lambda: torch)
        monkeypatch.setattr(listing, "count_gpus", lambda: ngpus)

    return has


def listed(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(listing.command, [*arguments, "--json"], standalone_mode=False)
    assert result.exception is None
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def available(section: str) -> dict[str, tuple[bool | None, str | None]]:
    return {entry["name"]: (entry["available"], entry["reason"]) for entry in listed(section)[section]}


def test_everything_with_a_name_is_listed_with_what_it_is(machine: Any) -> None:
    machine((2, 15), 0)
    document = listed()
    assert document["ok"] is True
    assert document["command"] == "list"
    names = {section: [entry["name"] for entry in document[section]] for section in listing.SECTIONS}
    assert names["collectives"] == list(COLLECTIVES)
    assert names["backends"][: len(BACKENDS)] == list(BACKENDS)
    assert names["topologies"] == list(TOPOLOGIES)
    assert names["dtypes"] == list(DTYPES)
    assert names["redops"] == list(REDOPS)
    assert names["modes"] == list(MODES)
    assert names["kernels"] == list(KINDS)
    assert [entry["bound"] for entry in document["kernels"]] == ["compute", "memory", "compute"]


def test_without_a_gpu_gloo_is_here_and_nccl_says_why_not(machine: Any) -> None:
    machine((2, 15), 0)
    here = available("backends")
    assert here["gloo"] == (True, None)
    assert here["nccl2"] == here["nccl-legacy"] == (False, "needs a GPU")
    assert here["ucc"] == (None, "known once a group is made")
    assert available("modes")["graph"] == (False, "needs a GPU")


def test_with_a_gpu_and_a_new_torch_all_of_nccl_is_here(machine: Any) -> None:
    machine((2, 15), 8)
    here = available("backends")
    assert all(here[name] == (True, None) for name in ("nccl2", "nccl-legacy", "nccl-lazy", "nccl", "gloo"))
    assert available("modes")["graph"] == (True, None)


def test_an_older_torch_lacks_the_rewritten_backend(machine: Any) -> None:
    machine((2, 13), 8)
    here = available("backends")
    assert here["nccl2"] == (False, "needs torch >= 2.15")
    assert here["nccl-legacy"] == (True, None)


def test_without_torch_there_is_no_backend(machine: Any) -> None:
    machine(None, 8)
    assert all(not here and "torch" in str(reason) for here, reason in available("backends").values())


def test_kernels_on_a_gpu_need_the_extra(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "find_spec", lambda name: None if name == "numba_cuda" else object())
    machine((2, 15), 0)
    assert set(available("kernels").values()) == {(True, None)}
    machine((2, 15), 8)
    assert set(available("kernels").values()) == {(False, "needs numba-cuda: pip install 'ncclbench[cuda]'")}


def test_text_says_the_same_in_one_line_each(machine: Any) -> None:
    machine((2, 13), 0)
    result = CliRunner().invoke(listing.command, ["backends"], standalone_mode=False)
    lines = result.stdout.splitlines()
    assert lines[0] == "backends:"
    assert any(line.startswith("  nccl2 ") and line.endswith("- needs torch >= 2.15") for line in lines)
    assert "collectives:" not in lines
    dtypes = CliRunner().invoke(listing.command, ["dtypes"], standalone_mode=False).stdout
    assert "float, 2 bytes per element (also half, fp16)" in dtypes


def test_the_installed_torch_is_found_without_importing_it() -> None:
    script = (
        "import sys\n"
        "from ncclbench.cli import list as listing\n"
        "print(listing._torch_version(), listing.backends()[0]['name'], 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    torch = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"],
        capture_output=True,
        text=True,
        timeout=100,
    ).stdout.split(".")
    assert done.stdout.strip() == f"({torch[0]}, {torch[1]}) gloo False", done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m ncclbench list | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "collectives:\n", "")
