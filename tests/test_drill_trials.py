"""Each fault against each strategy: real ranks fail, the others go on, and every phase is timed."""

from __future__ import annotations

from statistics import median

import pytest
from drilling import NRANKS, assert_recovered, trials

from ncclbench.tables.faults import FAULTS
from ncclbench.tables.strategies import REPLACED, STRATEGIES

ON_GLOO = [name for name in STRATEGIES if name not in ("reconfigure+fastpath", "shrink")]


@pytest.mark.parametrize(
    ("fault", "strategy", "spare"),
    [
        ("kill", "reconfigure", "warm"),
        ("kill", "rebuild", "cold"),
        ("hang", "reconfigure", "warm"),
        ("exit", "reconfigure", "warm"),
        ("exception", "rebuild", "warm"),
        ("slow", "reconfigure", "warm"),
    ],
)
def test_recovers(fault: str, strategy: str, spare: str) -> None:
    (trial,) = trials(fault=fault, strategies=(strategy,), spare=spare, timeout_s=3.0)
    assert_recovered(trial)
    assert set(trial.phases_ms) == set(REPLACED)
    for rate in (trial.before_GBs, trial.during_GBs, trial.after_GBs):
        assert rate is not None
        assert 0.005 < rate < 500
    assert set(trial.notices_ms) == {str(rank) for rank in range(NRANKS - 1)}
    asked, ready = trial.replacement_asked_ms, trial.phases_ms["replacement_ready"]
    assert asked is not None
    assert ready is not None
    # A warm one has imported torch already; importing it takes no less than half a second.
    assert ready - asked < 500 if spare == "warm" else ready - asked > 500


def test_first_rank_may_be_the_victim() -> None:
    (trial,) = trials(victim=0, nranks=3)
    assert_recovered(trial)
    assert set(trial.notices_ms) == {"1", "2"}


def test_hang_is_seen_by_silence_alone() -> None:
    """The survivors learn of it after a fifth of the timeout and not after all of it."""
    (trial,) = trials(fault="hang", timeout_s=4.0)
    assert_recovered(trial)
    first = trial.phases_ms["first_notice"]
    assert first is not None
    # Clocks of two processes, a fraction of a millisecond apart.
    assert 795 <= first < 3000


def test_nobody_does_anything() -> None:
    """torch tells the victim's neighbours in the ring; whoever else waits does so until the timeout."""
    (trial,) = trials(strategies=("abort",), timeout_s=2.0)
    assert_recovered(trial)
    first, last = trial.phases_ms["first_notice"], trial.phases_ms["last_notice"]
    assert first is not None
    assert last is not None
    assert first < 1000
    assert last > 1500
    assert trial.outcome is not None
    assert "told after 2 s" in trial.outcome


def test_slow_rank_that_nobody_detaches_slows_all() -> None:
    (trial,) = trials(fault="slow", strategies=("abort",))
    assert trial.recovered
    assert trial.outcome is not None
    assert "at the pace of rank 3" in trial.outcome


def test_strategies_take_turns() -> None:
    made = trials(strategies=("reconfigure", "rebuild"), trials=2, seed=1)
    assert sorted((trial.number, trial.strategy) for trial in made) == [
        (0, "rebuild"),
        (0, "reconfigure"),
        (1, "rebuild"),
        (1, "reconfigure"),
    ]
    assert [trial.number for trial in made] == [0, 0, 1, 1]


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("strategy", ON_GLOO)
def test_every_fault_with_every_strategy(fault: str, strategy: str) -> None:
    (trial,) = trials(fault=fault, strategies=(strategy,), spare="cold", timeout_s=4.0)
    assert_recovered(trial)


@pytest.mark.full
def test_a_killed_rank_costs_less_than_a_tenth_of_a_second() -> None:
    made = trials(trials=5, spare="cold")
    for trial in made:
        assert_recovered(trial)
    assert median(trial.phases_ms["first_good_n_minus_1"] or 1e9 for trial in made) < 100
