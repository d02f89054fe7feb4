"""Drills in a row leave nothing: no process, descriptor, socket, thread, shared memory or file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from drilling import assert_recovered, open_things, shared_memory, trials, used_by_others
from sweeping import wait_until

from ncclbench.faults.leftover import children
from ncclbench.store.drills import DrillTrial


def more(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """What there is more of."""
    return {name: count for name, count in after.items() if count > before[name]}


def in_a_row(count: int, temporary: Path) -> list[DrillTrial]:
    """Trials of all faults in turn, none of which leaves anything."""
    trials(fault="slow", nranks=3, victim=2)  # what is loaded once is no leak
    before, below, names = open_things(temporary), children(), shared_memory()
    made = []
    for number in range(count):
        fault = ("kill", "exit", "hang", "exception", "slow")[number % 5]
        spare = ("warm", "warm", "cold")[number % 3]
        strategy = ("reconfigure", "rebuild")[number % 2]
        made += trials(fault=fault, strategies=(strategy,), spare=spare, timeout_s=3.0, nranks=3, victim=2)
    # A store's thread ends by itself, a moment after the store.
    wait_until(lambda: not more(open_things(temporary), before), f"no more than {before}", within_s=5.0)
    assert children() == below
    new = shared_memory() - names
    assert not new - used_by_others(new)
    return made


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test alone for all temporary files, the ranks' among them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_drills_in_a_row_leave_nothing(temporary: Path, pytestconfig: pytest.Config) -> None:
    for trial in in_a_row(pytestconfig.getoption("--drills"), temporary):
        assert_recovered(trial)
