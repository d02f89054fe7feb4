"""The timeline that Perfetto opens: what a viewer needs of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flight_making import START_NS, dump, evidence, operation, operations

from ncclbench.flight.judge import judge
from ncclbench.flight.model import Evidence
from ncclbench.flight.trace import perfetto


@pytest.fixture
def hang() -> Evidence:
    """Rank 1 stays away from the third; rank 0 is on NCCL too, which tells when operations ended."""
    timed = operation(
        1,
        backend="nccl",
        state="completed",
        created_ns=START_NS + 2_000_000,
        started_ns=START_NS + 2_100_000,
        completed_ns=START_NS + 2_600_000,
    )
    return evidence(
        dump(0, operations([1, 2, 3], waits=True)),
        dump(0, [timed]),
        dump(1, operations([1, 2])),
        hosts={0: "node-00"},
    )


def traced(of: Evidence) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(json.dumps(perfetto(of, judge(of))))["traceEvents"]
    return events


def of_kind(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def test_every_rank_is_a_process_and_every_group_a_thread(hang: Evidence) -> None:
    names = {(event["name"], event["pid"], event["args"].get("name")) for event in of_kind(traced(hang), "M")}
    assert ("process_name", 0, "rank 0 (node-00)") in names
    assert ("process_name", 1, "rank 1") in names
    assert ("thread_name", 0, "gloo group 0 default_pg") in names
    assert ("thread_name", 0, "nccl group 0 default_pg") in names


def test_every_operation_is_a_slice_from_the_first_one_on(hang: Evidence) -> None:
    slices = of_kind(traced(hang), "X")
    assert len(slices) == 6
    assert min(event["ts"] for event in slices) == 0
    assert all(event["dur"] >= 0 for event in slices)
    assert {event["name"] for event in slices} == {"all_reduce 1", "all_reduce 2", "all_reduce 3"}


def test_ends_are_recorded_or_borrowed_or_open(hang: Evidence) -> None:
    slices = of_kind(traced(hang), "X")
    timed = next(event for event in slices if event["cat"] == "nccl")
    assert (timed["dur"], timed["args"]["end"], timed["args"]["started_after_us"]) == (600, "completed", 100)
    gloo = [event for event in slices if event["cat"] == "gloo" and event["pid"] == 0]
    assert [event["args"]["end"] for event in gloo] == ["next", "next", "open"]
    assert gloo[0]["dur"] == 1000


def test_findings_stand_where_they_happened(hang: Evidence) -> None:
    instants = [event for event in of_kind(traced(hang), "i") if event["tid"] == 100]
    assert {(event["pid"], event["name"]) for event in instants} == {
        (0, "stuck: issued it"),
        (1, "stuck: never issued it"),
    }
    assert all(event["args"]["why"] for event in instants)


def test_operations_under_way_together_stand_on_threads_of_their_own() -> None:
    """The first is open until the last comes, and the others come and go below it."""
    held = [operation(1, is_retired=False), *operations([2, 3, 4])]
    events = traced(evidence(dump(0, held)))
    slices = of_kind(events, "X")
    assert [event["tid"] for event in slices] == [100, 101, 101, 100]
    names = [event["args"]["name"] for event in of_kind(events, "M") if event["name"] == "thread_name"]
    assert names == ["gloo group 0 default_pg", "gloo group 0 default_pg (2)"]


def test_of_too_many_operations_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncclbench.flight.trace.MOST_OPERATIONS", 10)
    made = evidence(dump(0, operations(range(1, 9))), dump(1, operations(range(1, 9))))
    traced_whole = perfetto(made, judge(made))
    names = [event["name"] for event in of_kind(traced_whole["traceEvents"], "X") if event["pid"] == 1]
    assert names == [f"all_reduce {number}" for number in range(4, 9)]
    assert traced_whole["otherData"]["operations_left_out"] == 6


def test_an_empty_evidence_makes_an_empty_trace() -> None:
    assert traced(evidence()) == []
