"""What a run with several arms says on the terminal."""

from __future__ import annotations

from report_fixtures import make_run

from ncclbench.compare.paired import compare_run
from ncclbench.terminal.verdicts import verdict_lines


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
