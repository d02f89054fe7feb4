"""What a calibration advises, and what it does not mention."""

from __future__ import annotations

from typing import Any

import pytest
from calibrating import document_of, entry, quiet_environment

from ncclbench.compare.advice import advise
from ncclbench.environment.preflight import findings


def told(document: dict[str, Any], environment: dict[str, Any] | None = None) -> list[str]:
    environment = environment or quiet_environment()
    preflight = findings(environment, nranks=len(environment["ranks"]), backends=["gloo"], share_gpu=False)
    return advise(document, environment, preflight, 0.03)


def test_a_sound_machine_needs_no_advice() -> None:
    assert told(document_of(entry())) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"correlated": True, "autocorrelation": 0.7}, "make each longer with more -n"),
        ({"time_drifts": True, "time_drift": 0.9}, "drifted during the measurement, by up to 10 %"),
        ({"warming": True}, "warm up more with -w"),
        ({"spread_process": 0.2, "p_process": 0.001}, "use --epoch-kind process"),
        ({"spread_iteration": 0.08}, "more -n in the same epochs"),
        (
            {"beside_over_alone": {"ratio": 0.8, "ci_low": 0.7, "ci_high": 0.9}},
            "0.80x the time it takes alone",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(fields: dict[str, Any], words: str) -> None:
    (line,) = told(document_of(entry(**fields)))
    assert words in line
    assert "all_reduce 64K isolated" in line


@pytest.mark.parametrize(
    "fields",
    [
        {"spread_process": 0.2, "p_process": 0.2},  # may be chance
        {"spread_process": 0.01, "p_process": 0.001},  # certain, and small beside the groups
        {"time_drifts": True, "time_drift": 1.01},
        {"beside_over_alone": {"ratio": 0.8, "ci_low": 0.5, "ci_high": 1.2}},
    ],
)
def test_what_may_be_chance_or_does_not_matter_is_not_said(fields: dict[str, Any]) -> None:
    assert told(document_of(entry(**fields))) == []


def test_ranks_that_share_cores_are_told_how_many_to_start() -> None:
    crowded = quiet_environment(ranks=16)
    lines = told(document_of(entry()), crowded)
    assert lines == [
        "processes share a core: 16 ranks on 8 usable cores of node-00: use --nproc-per-node 8",
    ], "once, though the preflight has found it too"
    hyperthreads = told(document_of(entry()), quiet_environment(ranks=8, physical=4))
    assert "use --nproc-per-node 4" in hyperthreads[0]
    limited = told(document_of(entry()), quiet_environment(ranks=2, quota=1.5))
    assert limited == [
        "processes share a core: 2 ranks on 1.5 usable cores of node-00: use --nproc-per-node 1"
    ]


def test_ranks_bound_to_cores_of_their_own_share_none() -> None:
    bound = quiet_environment(ranks=4)
    for key in ("cores", "usable_cores", "usable_physical_cores"):
        del bound["common"][key]
    for rank in bound["ranks"]:
        rank |= {"cores": str(rank["rank"]), "usable_cores": 1, "usable_physical_cores": 1}
    assert told(document_of(entry()), bound) == []


def test_containers_of_one_machine_that_share_a_core_are_still_told() -> None:
    """The preflight sees that two hosts are one machine."""
    pair = quiet_environment(physical=1)
    pair["common"] |= {"cores": "0", "usable_cores": 1}
    pair["hosts"].append(dict(pair["hosts"][0], name="node-01"))
    pair["ranks"][1]["host"] = 1
    (line,) = told(document_of(entry()), pair)
    assert "start fewer ranks" in line


def test_findings_of_the_preflight_are_passed_on() -> None:
    saving = quiet_environment()
    saving["hosts"][0]["cpu_governor"] = "powersave"
    (line,) = told(document_of(entry()), saving)
    assert "governor" in line
    assert "cpupower" in line


def test_a_rate_beyond_chance_says_why() -> None:
    rate = {"false_verdicts": 40, "false_verdict_rate": 0.2, "rate_low": 0.147, "rate_high": 0.262}
    line = told(document_of(entry(correlated=True), **rate))[0]
    assert line.startswith("do not believe verdicts here: 40 of 200")
    assert "epochs that follow each other are alike" in line
    assert "why is not seen" in told(document_of(entry(), **rate))[0]


def test_few_comparisons_are_told_how_to_become_more() -> None:
    few = {"comparisons": 18, "false_verdicts": 1, "rate_low": 0.0014, "rate_high": 0.273}
    (line,) = told(document_of(entry(), **few))
    assert line.startswith("18 comparisons leave the rate of false verdicts between 0.1 % and 27 %")
    assert told(document_of(entry(), **(few | {"comparisons": 0, "rate_low": 0.0, "rate_high": 1.0}))) == []
