"""What a sweep does with a backend that an older torch does not have; run on the oldest torch too."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from packaging.version import Version
from sweeping import run, sweep

TORCH = Version(torch.__version__)
HAS_CUDA = torch.cuda.is_available()


def reason_without_nccl2() -> str | None:
    """Why nccl2 cannot be had here; None where it can."""
    if Version("2.15") > TORCH:
        return f"needs torch >= 2.15, this is {torch.__version__}"
    return None if HAS_CUDA else "needs a CUDA device, none is visible"


def test_nccl2_is_measured_or_says_what_it_needs(tmp_path: Path) -> None:
    base = "nccl-legacy" if HAS_CUDA else "gloo"
    options = ["--sizes", "4K", "--modes", "isolated", "-n", "2", "--epochs", "1", "--json"]
    outcome = sweep("--backends", f"{base},nccl2", "--out", tmp_path / "run", *options)
    assert outcome.code == 0, outcome.err
    measured, asked = outcome.document["rows"]
    assert (measured["arm"], measured["status"], measured["wrong"]) == (base, "ok", 0)
    reason = reason_without_nccl2()
    assert (asked["arm"], asked["status"], asked["reason"]) == (
        "nccl2",
        "unavailable" if reason else "ok",
        reason,
    )


def test_list_says_which_torch_a_backend_needs() -> None:
    outcome = run(sys.executable, "-m", "ncclbench", "list", "backends", "--json")
    (nccl2,) = (entry for entry in json.loads(outcome.out)["backends"] if entry["name"] == "nccl2")
    assert nccl2["available"] == (reason_without_nccl2() is None)
    if Version("2.15") > TORCH:
        assert nccl2["reason"] == "needs torch >= 2.15"
