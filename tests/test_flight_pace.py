"""Jobs that run well are not blamed, whenever their dumps are taken; and one folder that holds two jobs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flight_making import SECOND_NS, START_NS, dump, evidence, operation
from flying import START_NS as JOB_NS
from flying import STEP_NS, job, write_json, write_pickles

from ncclbench.flight.dumps import read
from ncclbench.flight.judge import judge
from ncclbench.flight.model import Dump, Judgement, Operation
from ncclbench.report.flight.figures import arrivals_map
from ncclbench.report.flight.model import flight_of

PACE_NS = 10_000_000


def judged(*dumps: Dump, **options: Any) -> Judgement:
    return judge(evidence(*dumps, **options))


def steps(last: int, pace_ns: int, *, late_ns: int = 0, waits: bool = False) -> list[Operation]:
    """One operation a step; the rank comes so much later than the first to each."""
    return [
        operation(
            number, created_ns=START_NS + number * pace_ns + late_ns, is_retired=not waits or number < last
        )
        for number in range(1, last + 1)
    ]


def seen(rank: int, held: Sequence[Operation], age_ns: int, *, by_file: bool) -> Dump:
    """A dump that was taken, or whose file was written, so long after the rank's last operation."""
    moment = held[-1].created_ns + age_ns
    return dump(rank, held, **({"written_ns": moment} if by_file else {"taken_ns": moment}))


@pytest.mark.parametrize("by_file", [False, True])
def test_a_rank_that_comes_a_little_later_is_not_blamed(by_file: bool) -> None:
    ahead = [seen(rank, steps(20, PACE_NS, waits=True), PACE_NS, by_file=by_file) for rank in range(3)]
    behind = seen(3, steps(19, PACE_NS), 2 * PACE_NS, by_file=by_file)
    judgement = judged(*ahead, behind)
    assert (judgement.verdict, judgement.findings) == ("healthy", ())


@pytest.mark.parametrize("by_file", [False, True])
def test_waits_as_long_as_the_steps_before_are_not_certain(by_file: bool) -> None:
    """Every step one rank comes three seconds after the others."""
    pace = 4 * SECOND_NS
    ahead = [seen(rank, steps(20, pace, waits=True), 2 * SECOND_NS, by_file=by_file) for rank in range(3)]
    late = steps(19, pace, late_ns=3 * SECOND_NS)
    judgement = judged(*ahead, seen(3, late, 2 * SECOND_NS, by_file=by_file))
    assert judgement.verdict == "unclear"
    assert "waited as long before" in judgement.message


@pytest.mark.parametrize(("took_s", "verdict"), [(3, "unclear"), (1, "stuck")])
def test_what_all_have_issued_may_take_as_long_as_it_did_before(took_s: int, verdict: str) -> None:
    """Issued far ahead of the device, as training loops do."""
    held = [
        replace(one, state="completed", completed_ns=one.created_ns + took_s * SECOND_NS)
        if one.is_retired
        else one
        for one in steps(20, PACE_NS, waits=True)
    ]
    ranks = [seen(rank, held, 2 * SECOND_NS, by_file=False) for rank in range(3)]
    assert judged(*ranks).verdict == verdict


def test_a_long_wait_after_short_steps_is_a_hang() -> None:
    ahead = [seen(rank, steps(20, PACE_NS, waits=True), 2 * SECOND_NS, by_file=False) for rank in range(3)]
    judgement = judged(*ahead, seen(3, steps(19, PACE_NS), 2 * SECOND_NS, by_file=False))
    assert judgement.verdict == "stuck"
    assert judgement.findings[0].missing_ranks == (3,)


def test_a_quarter_of_a_second_after_short_steps_is_not_yet_told() -> None:
    ahead = [seen(rank, steps(20, PACE_NS, waits=True), SECOND_NS // 4, by_file=False) for rank in range(3)]
    judgement = judged(*ahead, seen(3, steps(19, PACE_NS), SECOND_NS // 4, by_file=False))
    assert judgement.verdict == "unclear"
    assert "too short a wait" in judgement.message


@pytest.mark.parametrize("moment_ns", [START_NS // 2, START_NS + 10**17])
def test_times_of_files_that_tell_nothing_change_nothing(moment_ns: int) -> None:
    """Copied long after, or written by another clock."""
    ranks = [dump(rank, steps(20, PACE_NS, waits=True), written_ns=moment_ns) for rank in range(3)]
    assert judged(*ranks, dump(3, steps(19, PACE_NS), written_ns=moment_ns)).verdict == "stuck"


def test_a_rank_asked_before_the_others_came_there_is_not_blamed() -> None:
    early = seen(0, steps(100, PACE_NS), PACE_NS // 2, by_file=True)
    others = [seen(rank, steps(130, PACE_NS), PACE_NS // 2, by_file=True) for rank in (1, 2)]
    judgement = judged(early, *others)
    assert (judgement.verdict, judgement.findings) == ("healthy", ())


def test_who_left_and_dumped_at_once_is_blamed_by_those_who_then_waited_in_vain() -> None:
    left = seen(0, steps(5, PACE_NS), PACE_NS // 2, by_file=True)
    others = [seen(rank, steps(6, PACE_NS), 10 * SECOND_NS, by_file=True) for rank in (1, 2)]
    judgement = judged(left, *others)
    assert (judgement.verdict, judgement.findings[0].missing_ranks) == ("stuck", (0,))


def test_who_may_be_held_by_a_rank_without_a_dump_is_not_surely_to_blame() -> None:
    """The root has left the broadcast, where rank 1 still waited for rank 3."""
    held = [operation(1), operation(2, "broadcast")]
    group = {"members": {"0": range(4)}}
    went_on = [dump(rank, [*held, operation(3)], **group) for rank in (0, 2)]
    judgement = judged(*went_on, dump(1, held, **group), nranks=4)
    assert (judgement.verdict, judgement.findings[0].unknown_ranks) == ("unclear", (3,))
    assert (
        judged(*went_on, dump(1, held, **group), dump(3, [*held, operation(3)], **group)).verdict == "stuck"
    )


def test_when_a_file_was_written_is_read(tmp_path: Path) -> None:
    """The same dumps: right after the ranks came, and an hour later."""
    paths = write_pickles(tmp_path, job(4, 12, absent=(2,)))
    for moment_ns, verdict in ((JOB_NS + 12 * STEP_NS + 1_000_000, "healthy"), (JOB_NS + 10**12, "stuck")):
        for path in paths:
            os.utime(path, ns=(moment_ns, moment_ns))
        assert judge(read([tmp_path])).verdict == verdict


def _later(dumps: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The same, an hour after."""
    for content in dumps.values():
        for entry in content["entries"]:
            for key in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[key] += 3600 * SECOND_NS if entry[key] else 0
    return dumps


def test_of_two_jobs_in_a_folder_the_newest_is_read(tmp_path: Path) -> None:
    """Though the older one has fuller dumps, and of more ranks."""
    write_json(tmp_path / "monday", job(6, 40, absent=(1,)))
    write_json(tmp_path / "tuesday", _later(job(4, 12, absent=(2,))))
    evidence = read([tmp_path])
    assert sorted(one.source for one in evidence.dumps) == [
        str(tmp_path / f"tuesday/rank{r}.json") for r in range(4)
    ]
    reasons = " ".join(one.reason for one in evidence.refused)
    assert "newer dump, of another job" in reasons
    assert "before the job began" in reasons
    judgement = judge(evidence)
    assert (judgement.verdict, judgement.findings[0].missing_ranks) == ("stuck", (2,))


def test_of_one_job_the_fuller_dump_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "early", {rank: one for rank, one in job(4, 12).items() if rank < 2})
    write_json(tmp_path / "late", job(4, 13, absent=(2,)))
    evidence = read([tmp_path])
    assert all("late" in one.source for one in evidence.dumps)
    assert {one.reason.partition(":")[0][7:] for one in evidence.refused} == {"has a fuller dump"}
    assert replace(evidence.dumps[0], rank=None).operations[-1].sequence == 13


def test_a_map_of_two_operations_has_one_tick_for_each(tmp_path: Path) -> None:
    write_json(tmp_path, job(3, 2, absent=(1,)))
    evidence = read([tmp_path])
    figure = arrivals_map(flight_of(evidence, judge(evidence)), "map")
    assert figure is not None
    assert [one.layout["xaxis"]["dtick"] for plots in figure.plots.values() for one in plots.values()] == [1]
