"""Hangs made for real, each with what must be said of it, before and after the timeout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hanging import dump_files, run_scripts
from hanging_group_scripts import SCRIPTS

from ncclbench.flight.dumps import read
from ncclbench.flight.judge import judge
from ncclbench.flight.model import Dump, Evidence, Judgement

# Run for every change; the others by the full tests.
USUAL = ("missing_rank", "wrong_collective", "crossed_by_one", "cascade", "healthy")

Ranks = frozenset[int]
NOBODY: Ranks = frozenset()


@dataclass(frozen=True)
class Case:
    """What is to be said of a script at a moment; ``group`` is that of the first finding.

    ``without``: ranks whose dumps are taken away. ``aborts``: gloo ends a process that is sent a size which
    it does not expect, so that any rank may leave no dump. ``tie``: missing ranks and group of another
    finding that may as well be the first.
    """

    script: str
    moments: str
    verdict: str
    missing: Ranks = NOBODY
    mismatched: Ranks = NOBODY
    unknown: Ranks = NOBODY
    without: Ranks = NOBODY
    group: str | None = None
    aborts: bool = False
    tie: tuple[Ranks, str] | None = None

    @property
    def blamed(self) -> Ranks:
        return self.missing | self.mismatched or self.unknown


def ranks(*numbers: int) -> Ranks:
    return frozenset(numbers)


BOTH, BEFORE, AFTER = "before after", "before", "after"
CASES = (
    Case("missing_rank", BOTH, "stuck", missing=ranks(2)),
    Case("missing_from_the_start", BOTH, "stuck", missing=ranks(1)),
    Case("two_missing", BOTH, "stuck", missing=ranks(1, 3)),
    Case("missing_of_two", BOTH, "stuck", missing=ranks(1)),
    Case("missing_root", BOTH, "stuck", missing=ranks(0)),
    Case("missing_from_a_burst", BOTH, "stuck", missing=ranks(1)),
    Case("wrong_collective", BOTH, "mismatch", mismatched=ranks(2)),
    Case("wrong_of_two", BOTH, "mismatch", mismatched=ranks(0, 1)),
    Case("wrong_size", BOTH, "mismatch", mismatched=ranks(1), aborts=True),
    Case("wrong_size_of_gather", BOTH, "mismatch", mismatched=ranks(3), aborts=True),
    Case("wrong_dtype", BOTH, "mismatch", mismatched=ranks(3), aborts=True),
    Case("wrong_dtype_of_equal_size", BOTH, "mismatch", mismatched=ranks(0)),
    Case("wrong_root_of_gather", BOTH, "mismatch", mismatched=ranks(2)),
    Case("wrong_root_of_scatter", BOTH, "mismatch", mismatched=ranks(1)),
    # The root of a reduce or broadcast is not recorded: some are stuck inside, and nobody can be blamed.
    Case("wrong_root_of_reduce", BEFORE, "unclear"),
    Case("wrong_root_of_broadcast", BEFORE, "stuck"),
    Case("crossed_halves", BOTH, "stuck", missing=ranks(2, 3), group="1", tie=(ranks(0, 1), "2")),
    Case("crossed_by_one", BOTH, "stuck", missing=ranks(2), group="1"),
    Case("crossed_with_the_world", BOTH, "stuck", missing=ranks(0), group="0"),
    Case("stuck_before", BEFORE, "stuck", unknown=ranks(3)),
    Case("stuck_before", AFTER, "unclear", unknown=ranks(3)),
    Case("stuck_inside", BEFORE, "stuck", unknown=ranks(1)),
    Case("stuck_after", BOTH, "stuck", missing=ranks(0)),
    # Its neighbours were told at once, which looks like the end of a healthy run.
    Case("killed", BEFORE, "unclear", unknown=ranks(2)),
    Case("wrapped", BOTH, "stuck", missing=ranks(2)),
    Case("wrapped_mismatch", BOTH, "mismatch", mismatched=ranks(1)),
    Case("cascade", BOTH, "stuck", missing=ranks(1), group="1"),
    Case("mismatch_in_a_subgroup", BOTH, "mismatch", mismatched=ranks(1), group="1"),
    Case("wrapped_subgroup", BEFORE, "stuck", unknown=ranks(3, 4)),
    Case("chain", BOTH, "stuck", missing=ranks(3), group="3"),
    Case("mesh", BOTH, "stuck", missing=ranks(3)),
    Case("two_pairs_apart", BOTH, "stuck", missing=ranks(1), group="1", tie=(ranks(2), "2")),
    Case("subgroup_of_two_without_one", BOTH, "stuck", missing=ranks(2), group="1"),
    # The one with the wrong size is ended by gloo, and nothing is left of what it issued.
    Case("wrong_size_of_broadcast", BOTH, "unclear", unknown=ranks(2)),
    Case("extra_of_another_size", BOTH, "mismatch", mismatched=ranks(2), aborts=True),
    Case("swapped", BOTH, "mismatch", mismatched=ranks(1)),
    Case("extra_of_another_kind", BOTH, "mismatch", mismatched=ranks(3)),
    Case("one_more_than_the_others", BOTH, "stuck", missing=ranks(0, 2, 3)),
    Case("early_exit", BOTH, "stuck", missing=ranks(3)),
    Case("objects", BOTH, "stuck", missing=ranks(3)),
    Case("made_anew", BOTH, "stuck", missing=ranks(1)),
    Case("waits_for_a_message", BOTH, "stuck", missing=ranks(0)),
    Case("uneven_all_to_all", BOTH, "healthy"),
    Case("alone_in_groups_of_one", BOTH, "healthy"),
    Case("healthy", BOTH, "healthy"),
    Case("in_flight", AFTER, "healthy"),
    Case("one_is_slower", BOTH, "healthy"),
    # Without the dump of the guilty rank, of one that waits, of one in the middle of a cascade.
    Case("missing_rank", BEFORE, "stuck", unknown=ranks(2), without=ranks(2)),
    Case("missing_rank", BOTH, "stuck", missing=ranks(2), without=ranks(0)),
    Case("wrong_collective", BEFORE, "stuck", unknown=ranks(2), without=ranks(2)),
    Case("wrong_collective", BOTH, "mismatch", mismatched=ranks(2), without=ranks(1)),
    Case("cascade", BEFORE, "stuck", unknown=ranks(1), without=ranks(1), group="1"),
    Case("cascade", BEFORE, "stuck", missing=ranks(1), without=ranks(0), group="0"),
    Case("healthy", BOTH, "unclear", unknown=ranks(2), without=ranks(2)),
)
USUAL_CASES = [case for case in CASES if case.script in USUAL]


def name_of(case: Case) -> str:
    return case.script + "".join(f"-without-{rank}" for rank in sorted(case.without))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_scripts(USUAL, tmp_path_factory.mktemp("usual"))


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_scripts(list(SCRIPTS), tmp_path_factory.mktemp("every"))


def evidence_of(folder: Path, case: Case, moment: str, kind: str) -> Evidence:
    return read(list(dump_files(folder, case.script, moment, kind, tuple(case.without))))


def with_times(evidence: Evidence) -> Evidence:
    """As live capture has it: when each dump was taken."""
    dumps = (replace(one, taken_ns=taken_ns(one)) for one in evidence.dumps)
    return replace(evidence, dumps=tuple(dumps))


def taken_ns(dump: Dump) -> int:
    return int((Path(dump.source).parent.parent / f"taken_{dump.rank}").read_text())


def judgements(folder: Path, case: Case) -> Iterator[tuple[str, Judgement]]:
    for moment in case.moments.split():
        for kind in ("json", "pickle"):
            yield f"{moment} {kind}", judge(evidence_of(folder, case, moment, kind))


def check(folder: Path, case: Case) -> None:
    expected = case
    for what, judgement in judgements(folder, case):
        case = expected
        said = f"{what}: {judgement.message}"
        assert judgement.verdict == case.verdict, said
        if case.verdict == "healthy":
            assert not judgement.findings, said
            continue
        if not judgement.findings:
            assert case.verdict == "unclear", said
            assert set(judgement.missing_dumps) == case.blamed, said
            continue
        first = judgement.findings[0]
        if case.tie is not None and first.group == case.tie[1]:
            case = replace(case, missing=case.tie[0], group=case.tie[1])
        assert set(first.missing_ranks) == case.missing, said
        assert set(first.mismatched_ranks) == case.mismatched, said
        if not case.aborts:
            assert not case.unknown or set(first.unknown_ranks) == case.unknown, said
            # Of those that are unknown only, dumps are missing too, but where a ring has wrapped.
            absent = case.without or (NOBODY if judgement.wrapped_ranks else case.unknown)
            assert set(judgement.missing_dumps) == absent, said
        assert case.group is None or first.group == case.group, said
        assert str(min(case.blamed, default="")) in judgement.message, said


@pytest.mark.parametrize("case", USUAL_CASES, ids=name_of)
def test_usual_hangs_are_told(usual: Path, case: Case) -> None:
    check(usual, case)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_all_hangs_are_told(every: Path, case: Case) -> None:
    check(every, case)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_is_in_flight_is_no_hang_where_dumps_tell_when_they_were_taken(every: Path, moment: str) -> None:
    taken = with_times(evidence_of(every, Case("in_flight", moment, "healthy"), moment, "json"))
    judgement = judge(taken)
    assert judgement.verdict == "healthy", judgement.message


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [case for case in CASES if not case.without], ids=name_of)
def test_times_of_dumps_change_nothing_in_a_hang(every: Path, case: Case) -> None:
    if "before" in case.moments:
        judgement = judge(with_times(evidence_of(every, case, "before", "json")))
        expected = "stuck" if case.script == "wrong_root_of_reduce" else case.verdict
        assert judgement.verdict == expected, judgement.message


@pytest.mark.full
@pytest.mark.timeout(120)
def test_the_place_in_the_code_is_told_where_stacks_are_recorded(tmp_path: Path) -> None:
    scripts = ("missing_rank", "wrong_collective", "one_more_than_the_others")
    run_scripts(scripts, tmp_path, frames=True)
    found = {}
    for script in scripts:
        judgement = judge(read(list(dump_files(tmp_path, script, "before", "pickle"))))
        found[script] = judgement.findings[0]
    assert all("hanging" in (finding.where or "") for finding in found.values()), found
    assert (found["wrong_collective"].where or "").endswith(" wrong_collective")
    extra = found["one_more_than_the_others"]
    assert extra.mismatched_ranks == (1,)
    assert "all_reduce 4, at " in extra.why
    assert "is the one that the others do not have" in extra.why


def test_more_than_thirty_cases_are_tried() -> None:
    tried: Sequence[tuple[Case, str]] = [(case, moment) for case in CASES for moment in case.moments.split()]
    assert len(tried) >= 30
    assert {case.script for case in CASES} == set(SCRIPTS)
