"""The CUDA kernels and how they are launched, in numba's simulator: no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kernel_simulating import CASES

SCRIPT = Path(__file__).with_name("kernel_simulating.py")
ARRAYS = {"fma": 2, "triad": 3, "gemm": 3}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """What each kernel came to: one process, as numba decides on its simulator when it is imported."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *CASES],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(SCRIPT.parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", CASES)
def test_results_are_right_at_every_length(outcomes: dict[str, Any], kind: str) -> None:
    assert outcomes[kind]["right"] == [True, True]


@pytest.mark.parametrize("kind", CASES)
def test_one_wrong_element_is_found(outcomes: dict[str, Any], kind: str) -> None:
    assert outcomes[kind]["wrong"] == [False, False]


@pytest.mark.parametrize("kind", CASES)
def test_the_cpu_twin_computes_the_same(outcomes: dict[str, Any], kind: str) -> None:
    assert outcomes[kind]["off_twin"] <= (1e-6 if kind == "fma" else 0)


@pytest.mark.parametrize("kind", CASES)
def test_arrays_are_converted_once_and_before_all_launches(outcomes: dict[str, Any], kind: str) -> None:
    log = outcomes[kind]["log"]
    assert log[: ARRAYS[kind]] == ["convert"] * ARRAYS[kind]
    assert log.count("convert") == ARRAYS[kind]


@pytest.mark.parametrize("kind", CASES)
def test_launches_go_on_the_stream_that_is_current_then(outcomes: dict[str, Any], kind: str) -> None:
    """The current stream changes after every launch. A stream is made known to numba once."""
    log = outcomes[kind]["log"]
    streams = [int(line.rsplit(" ", 1)[1]) for line in log if line.startswith("launch")]
    # The launch of compile() and the first of launch() see the same stream.
    assert streams == [streams[0], *range(streams[0], streams[0] + len(streams) - 1)]
    assert [line for line in log if line.startswith("wrap")] == [
        f"wrap stream {stream}" for stream in sorted(set(streams))
    ]


def test_an_error_of_many_lines_comes_as_one(outcomes: dict[str, Any]) -> None:
    assert outcomes["failed"] == (
        "kernel fma cannot run on cuda:3: unsupported PTX version (if numba-cuda does not fit the driver: "
        "pip install -U 'ncclbench[cuda]')"
    )


@pytest.mark.parametrize("kind", CASES)
def test_launching_waits_for_nothing(outcomes: dict[str, Any], kind: str) -> None:
    log = outcomes[kind]["log"]
    compiled = max(i for i, line in enumerate(log) if line == "synchronize")
    assert [line for line in log[: compiled + 1] if line.startswith("launch")] == [
        f"launch on stream {log[ARRAYS[kind]].rsplit(' ', 1)[1]}"
    ]
    assert set(log[compiled + 1 :]) <= {line for line in log if line.startswith(("launch", "wrap"))}
