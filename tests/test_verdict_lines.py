"""What a run with several arms says on the terminal."""

from __future__ import annotations

import pytest
from report_fixtures import make_run

from ncclbench.compare.launches import compare_sides
from ncclbench.compare.paired import compare_run
from ncclbench.compare.sides import Side
from ncclbench.terminal.comparison import conclusion
from ncclbench.terminal.verdicts import case_name, verdict_lines, verdict_words, why_unclear


def test_one_arm_says_nothing() -> None:
    assert verdict_lines(compare_run(make_run(sizes=(64,), epochs=8))) == []


def test_each_case_has_its_ratio_and_each_arm_its_counts() -> None:
    run = make_run(
        ops=("all_reduce",),
        sizes=(64, 65536),
        modes=("back-to-back",),
        arms=("gloo", "gloo#2"),
        slower={"gloo#2": 1.3},
        epochs=12,
    )
    lines = verdict_lines(compare_run(run))
    rows = [line for line in lines if line.startswith("  ")]
    assert [line.split()[3] for line in rows] == ["64", "64K"]
    assert all("x time [" in line and line.endswith("slower") for line in rows)
    assert "# gloo#2 against gloo: 2 slower" in lines


def test_all_unclear_says_what_to_do() -> None:
    run = make_run(ops=("all_reduce",), sizes=(64,), arms=("gloo", "gloo#2"), epochs=3)
    assert "--epochs" in verdict_lines(compare_run(run))[-1]


def row(**values: object) -> dict[str, object]:
    """What the words of a verdict are made of."""
    case = {"op": "all_reduce", "dtype": "float32", "redop": "sum", "nbytes": 65536, "mode": "isolated"}
    found = {"ratio": 1.084, "verdict": "slower", "tail": None, "note": None, "doubt": None, "async": False}
    return {**case, **found, "detectable": 0.031, "between_modes": False, **values}


def test_a_verdict_says_that_its_ratio_is_one_of_times() -> None:
    assert verdict_words(row()) == ["1.08x time, slower"]
    assert verdict_words(row(ratio=0.991, verdict="same", tail="tail worse")) == [
        "0.99x time, same",
        "tail worse",
    ]


def test_an_unclear_one_says_what_would_have_been_found_but_not_beside_another_reason() -> None:
    assert verdict_words(row(verdict="unclear")) == ["unclear", "would find 3.1 % and more"]
    assert verdict_words(row(verdict="unclear", doubt="2 epochs")) == ["unclear"]
    about = row(verdict="unclear", note="about these nodes only (1 against 1), not about their kind")
    assert verdict_words(about) == ["unclear", "would find 3.1 % and more"]
    assert verdict_words(row(verdict="unclear", detectable=None)) == ["unclear"]
    assert verdict_words(row(verdict="unclear", ratio=None, detectable=None)) == ["unclear"]


def test_a_statistic_between_two_modes_is_marked() -> None:
    assert "sits between two modes" in verdict_words(row(between_modes=True))


def test_a_case_is_named_by_what_tells_it_apart() -> None:
    assert case_name(row()) == "all_reduce float32 sum 64K isolated"
    assert (
        case_name(row(**{"redop": None, "nbytes": 12, "async": True}))
        == "all_reduce float32 12 isolated async"
    )


def test_between_modes_is_marked_in_a_sweep_too() -> None:
    run = make_run(ops=("all_reduce",), sizes=(64,), modes=("isolated",), arms=("gloo", "gloo#2"), epochs=8)
    rows = [{**each, "between_modes": True} for each in compare_run(run)]
    assert any("sits between two modes" in line for line in verdict_lines(rows))


def unclear(doubt: str | None, unit: str = "epochs", epochs: int = 8) -> dict[str, object]:
    return row(verdict="unclear", doubt=doubt, unit=unit, epochs=epochs)


@pytest.mark.parametrize(
    ("unit", "advice"),
    [("epochs", "more --epochs"), ("launches", "more launches"), ("nodes", "more nodes")],
)
def test_noise_asks_for_more_of_what_was_repeated(unit: str, advice: str) -> None:
    told = why_unclear([unclear(None, unit)])
    assert told == f"the {unit} vary too much: {advice}, or a quieter machine"


def test_the_commonest_doubt_is_told() -> None:
    hung = "b: rank 1 hung"
    assert why_unclear([unclear(hung), unclear(hung)]) == hung
    assert why_unclear([unclear(hung), unclear(hung), unclear(None)]) == f"{hung} (and other reasons)"


def test_few_epochs_of_one_job_ask_for_more_of_them() -> None:
    """As arms of one run are compared, on the terminal of a sweep and of compare."""
    run = make_run(ops=("all_reduce",), sizes=(64,), modes=("back-to-back",), arms=("a", "b"), epochs=4)
    told = "too few epochs in one job (4 epochs on both arms, a verdict needs 6): more --epochs"
    assert verdict_lines(compare_run(run))[-1] == f"# no verdict: {told}"
    comparison = compare_sides(Side([run], "a", "a"), Side([run], "b", "b"))
    assert conclusion(comparison).startswith("no verdict on 1 case ")
    assert conclusion(comparison).endswith(told)


def test_a_failure_in_one_job_is_the_reason_told() -> None:
    run = make_run(ops=("all_reduce",), sizes=(64,), modes=("back-to-back",), arms=("a", "b"), epochs=8)
    (key,) = [key for key in run.units if key[1] == "b"]
    del run.units[key]
    run.statuses[key] = ("failed", "rank 1 hung")
    comparison = compare_sides(Side([run], "a", "a"), Side([run], "b", "b"))
    assert conclusion(comparison) == "no verdict on 1 case: b: rank 1 hung"
