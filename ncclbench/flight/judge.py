"""Who is to blame for a hang: the answer from what flight recorders held.

Members of a group have issued the same operations under the same numbers, or they disagree ("mismatch").
Where some have issued a number and others have not, the former wait for the latter ("stuck"); a rank that
waits in one group cannot arrive in another, so of many such findings that comes first whose missing ranks
wait nowhere. The verdict is that of the first finding, with these exceptions:

* "unclear" where all that is found is in flight for all one can know: all members have issued it, and when
  the dumps were taken is not recorded.
* "unclear" where nothing is found and ranks left no dump: one of these may have been the hang, which after a
  timeout leaves no trace in the others.
* A rank without a dump, for which all others wait, is the suspect: the verdict is "stuck", no rank is listed
  as missing, and the suspect is in ``unknown_ranks``.
* "healthy" where nobody waits and nobody was left behind. A few operations ahead is no fault in what can be
  left early (broadcast, reduce, gather, scatter), unless the others had let the timeout pass.

What torch does not record cannot be told: the root of broadcast and reduce, the operator, and on gloo whether
an operation that is retired was completed or given up. That an all_reduce was given up is told by a rank that
had not issued it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ncclbench.flight.cases import Case
from ncclbench.flight.join import Joined, join
from ncclbench.flight.model import Evidence, Finding, Judgement, Verdict
from ncclbench.flight.order import in_order
from ncclbench.flight.pairs import pair_cases
from ncclbench.flight.places import tell_shift
from ncclbench.flight.waiting import collective_cases
from ncclbench.flight.words import named, place, ranks_words, sentence


def judge(evidence: Evidence) -> Judgement:
    """What hangs, who did not come or did something else, and what cannot be known; the root cause first."""
    joined = join(evidence)
    cases: list[Case] = []
    for group in joined.groups:
        cases += collective_cases(group, joined)
        if group.pairs:
            cases += pair_cases(group)
    cases = in_order(cases, joined)
    if cases:
        tell_shift(cases[0])
    findings = tuple(_finding(case, evidence, joined) for case in cases)
    verdict = _verdict(cases, joined)
    message = _message(verdict, cases, findings, evidence, joined)
    return Judgement(verdict, message, findings, joined.missing, tuple(sorted(joined.wrapped)))


def _verdict(cases: Sequence[Case], joined: Joined) -> Verdict:
    if cases:
        return cases[0].kind if cases[0].is_certain else "unclear"
    return "unclear" if joined.missing or not joined.ranks else "healthy"


def _finding(case: Case, evidence: Evidence, joined: Joined) -> Finding:
    blamed = case.mismatched or case.missing or case.unknown
    hosts = dict.fromkeys(evidence.host_of[rank] for rank in sorted(blamed) if rank in evidence.host_of)
    return Finding(
        kind=case.kind,
        group=case.group.name,
        sequence=case.sequence,
        collective=case.operation.collective,
        missing_ranks=tuple(sorted(case.missing)),
        arrived_ranks=tuple(sorted(case.arrived)),
        mismatched_ranks=tuple(sorted(case.mismatched)),
        unknown_ranks=tuple(sorted(case.unknown)),
        hosts=tuple(hosts),
        where=_where(case, joined),
        why=sentence(case, evidence.host_of, joined.missing),
        causes=case.causes,
    )


def _where(case: Case, joined: Joined) -> str | None:
    """Of a rank to blame its last operation, or that which does not fit; else where the others wait."""
    if case.shift is not None:
        return case.shift[1]
    for rank in sorted(case.mismatched):
        if rank in case.issued and case.issued[rank].frames:
            return place(case.issued[rank].frames)
    for rank in sorted(case.missing):
        if rank in joined.newest and joined.newest[rank].frames:
            return place(joined.newest[rank].frames)
    for rank in sorted(case.issued):
        if case.issued[rank].frames:
            return place(case.issued[rank].frames)
    return None


def _message(
    verdict: Verdict,
    cases: Sequence[Case],
    findings: Sequence[Finding],
    evidence: Evidence,
    joined: Joined,
) -> str:
    said = [findings[0].why] if findings else [_nothing_found(verdict, joined)]
    if findings and findings[0].causes:
        said.append(f"{findings[0].causes} more {'follows' if findings[0].causes == 1 else 'follow'} from it")
    rest = _others(cases)
    if rest:
        said.append(f"{rest} more {'does' if rest == 1 else 'do'} not follow from it")
    suspects = set(findings[0].unknown_ranks) if findings else set()
    silent = [rank for rank in joined.missing if rank not in suspects]
    if silent and findings:
        said.append(f"{named(silent, evidence.host_of)} left no dump")
    return "; ".join(said)


def _others(cases: Sequence[Case]) -> int:
    """How many neither follow from another nor can be laid to the ranks of the first."""
    roots = [case for case in cases if not case.held_by]
    blamed = [case.mismatched | case.missing or case.unknown for case in roots]
    return sum(not ranks <= blamed[0] for ranks in blamed[1:])


def _nothing_found(verdict: Verdict, joined: Joined) -> str:
    if not joined.ranks:
        return "no dump tells of which rank it is, so nothing can be joined"
    ranks = f"{len(joined.ranks)} {'rank' if len(joined.ranks) == 1 else 'ranks'}"
    groups = f"{len(joined.groups)} {'group' if len(joined.groups) == 1 else 'groups'}"
    if not joined.groups:
        said = f"the dumps of {ranks} hold no operation"
    else:
        said = f"{ranks} issued the same operations in {groups} and nobody waits"
    if joined.wrapped:
        said += f", as far back as the rings of {ranks_words(joined.wrapped)} reach"
    if verdict == "unclear":
        said += f"; but {ranks_words(joined.missing)} left no dump and may be what was waited for"
    return said
