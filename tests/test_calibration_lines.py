"""What a person reads of a calibration and of a plan: the table, and in the last line what it means."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from calibrating import document_of, entry, quiet_environment
from report_fixtures import make_run

from ncclbench.terminal.calibration import CalibrationListener, calibration_lines, conclusion

SHOWN = {
    "false": {"false_verdicts": 40, "false_verdict_rate": 0.2, "rate_low": 0.147, "rate_high": 0.262},
    "few": {"comparisons": 18, "false_verdicts": 1, "rate_low": 0.0014, "rate_high": 0.273},
    "sure": {"comparisons": 200, "false_verdicts": 3, "rate_low": 0.003, "rate_high": 0.043},
    "none": {"comparisons": 0, "false_verdicts": 0, "rate_low": 0.0, "rate_high": 1.0},
}


@pytest.mark.parametrize(
    ("what", "begin", "counted"),
    [
        ("false", "verdicts CANNOT be believed here: ", "40 of 200"),
        ("few", "nothing speaks against verdicts here, 5 % may be false: ", "1 of 18"),
        ("sure", "verdicts can be believed here: ", "3 of 200"),
        ("none", "too few epochs to compare anything: raise --time-budget", ""),
    ],
)
def test_the_conclusion_says_how_far_verdicts_can_be_believed(what: str, begin: str, counted: str) -> None:
    belief, _ = conclusion(document_of(entry(), **SHOWN[what]))
    assert belief.startswith(begin + counted)


def test_the_conclusion_says_what_can_be_found() -> None:
    good, bad = entry(nbytes=8, smallest=0.011), entry(nbytes=1 << 20, smallest=0.062)
    unknown = entry(nbytes=64, smallest=None)
    _, both = conclusion(document_of(bad, good, unknown))
    assert both == (
        "10 s a case find differences from 1.1 % (all_reduce 8 isolated) to 6.2 % (all_reduce 1M isolated)"
    )
    assert conclusion(document_of(good, unknown))[-1].endswith(
        "a difference of 1.1 % (all_reduce 8 isolated)"
    )
    assert conclusion(document_of(unknown))[-1].endswith("too short for any difference to be found")


def test_the_table_has_a_line_per_case_and_dashes_for_what_is_unknown() -> None:
    nothing = dict.fromkeys(("spread", "spread_group", "smallest", "time_drift", "beside_over_alone"))
    lines = calibration_lines(document_of(entry(), entry(nbytes=8, **nothing), advice=["do\nthis"]))
    (known,) = [line for line in lines if "64K isolated" in line]
    assert known.split()[3:] == [
        *("500.00", "4.0", "%", "-", "3.0", "%", "2.0", "%", "+0.0", "%", "1.00x", "2.0", "%")
    ]
    (unknown,) = [line for line in lines if "all_reduce 8 isolated" in line]
    assert unknown.split()[3:] == ["500.00", "-", "-", "-", "2.0", "%", "-", "-", "-"]
    assert lines[-1] == "advice: do this"
    heads = next(line for line in lines if line.startswith("# case"))
    assert len(heads) == max(len(known), len(unknown))


def test_a_calibration_of_nothing_says_so() -> None:
    nothing = document_of(comparisons=0, false_verdicts=0, rate_low=0.0, rate_high=1.0)
    (said,) = conclusion(nothing)
    assert said.startswith("no case could be measured")


def test_what_epochs_take_beside_their_cases_is_found_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    plan = make_run(ops=["all_reduce"], sizes=[8, 4096], modes=["isolated"], epochs=3).plan
    listener = CalibrationListener([plan, plan], Path("cal"), as_json=True)
    for groups_s in (0.5, 0.25):
        listener.started(Path("cal"), plan, quiet_environment(), [])
        now_s += 7.0  # until processes are there
        for epoch in range(3):
            now_s += groups_s
            for case, case_s in zip(plan.planned, (1.0, 2.0), strict=True):
                now_s += case_s
                listener.measured(case, epoch, [], case_s)
    assert listener.overhead_s == [[0.5, 0.5], [0.25, 0.25]]
    assert listener.seconds[1] == {plan.planned[0].key: [1.0] * 3, plan.planned[1].key: [2.0] * 3}
