"""The words of an answer: what is said once, what is named in full, and what was looked at."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from attributing import tables
from report_reading import page_of
from searching_fixtures import make_search

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.evidence import evidence_of
from ncclbench.attribution.links import link_rows
from ncclbench.attribution.model import Attribution, Evidence, LinkSamples, Places, RankSamples
from ncclbench.attribution.words import speakers
from ncclbench.report.build import report_of
from ncclbench.report.panels import PANELS
from ncclbench.terminal.links import matrix_lines, not_drained, split_names, suspect_lines

Fault, cluster, table = tables.Fault, tables.cluster, tables.table
QUIET = tables.Noise(within=0.002, between=0.005, far_out=0.0, drift=0.05)

# GB/s one way and both ways at once, by (src, dst): the one pass that three ranks made before one was killed.
ONE_PASS = {
    (0, 1): (0.515, 2.230),
    (0, 2): (0.380, 0.739),
    (1, 0): (2.403, 2.318),
    (1, 2): (1.048, 1.058),
    (2, 0): (0.344, 0.211),
    (2, 1): (0.331, 0.350),
}


def one_pass() -> Attribution:
    links = [
        LinkSamples(*pair, np.array([alone]), np.array([500.0]), np.array([both]))
        for pair, (alone, both) in ONE_PASS.items()
    ]
    return attribute(Evidence(Places((0, 0, 0), ("vm",)), links))


def answer(where: object, *faults: object, both: bool = False, seed: int = 7) -> Attribution:
    evidence = table(where, list(faults), QUIET, np.random.default_rng(seed))
    if both:
        links = [dataclasses.replace(link, both_GBs=link.bandwidth_GBs * 0.9) for link in evidence.links]
        evidence = dataclasses.replace(evidence, links=links)
    return attribute(evidence)


def only(evidence: Evidence, *pairs: tuple[int, int]) -> Evidence:
    return dataclasses.replace(
        evidence, links=[link for link in evidence.links if (link.src, link.dst) in pairs]
    )


# --- what cannot be told


def test_at_most_three_are_said_and_the_strongest_first() -> None:
    found = one_pass()
    assert len(found.unclear) > 3
    factors = [float(text.split(": ")[1].split("x")[0]) for text in found.unclear]
    assert factors == sorted(factors, reverse=True)
    assert found.message == (
        f"cannot be told: {'; '.join(found.unclear[:3])}; and {len(found.unclear) - 3} more of the kind"
    )


def test_equal_words_are_said_once_and_the_measure_is_named() -> None:
    whose = [text.split(": ")[0] for text in one_pass().unclear]
    assert len(set(whose)) == len(whose)
    assert "the links of rank 2" in whose
    assert "the links of rank 2 (both ways at once)" in whose


def test_one_direction_is_written_as_one() -> None:
    whose = [text.split(": ")[0] for text in one_pass().unclear]
    assert "the link 0>2" in whose
    assert "the link 2>0 (both ways at once)" in whose
    assert "the link of rank 0 and rank 2 (both ways at once)" in whose  # the pair


def test_one_direction_between_hosts_has_rank_numbers_and_names() -> None:
    where = cluster(3, 2, 1)
    found = attribute(
        table(where, [Fault("link", (0, 1), 6, "one", of_hosts=True)], QUIET, np.random.default_rng(7))
    )
    assert any(text.startswith("the link 0>2 (node-0 > node-1): 6.") for text in found.unclear), found.unclear


def test_copies_are_no_work() -> None:
    ranks = [
        RankSamples(rank, np.array([100.0]), np.array([5.0 if rank == 3 else 50.0]), np.array([50.0]))
        for rank in range(8)
    ]
    found = attribute(Evidence(Places((0,) * 8, ("a",)), [], ranks))
    assert [text.split(":")[0] for text in found.unclear] == ["the host-to-device copies of rank 3"]


def test_terminal_and_report_say_it_once() -> None:
    found = one_pass()
    assert not any(text in line for line in suspect_lines(found, []) for text in found.unclear)
    run = make_search(hosts=2, passes=1, slow_pairs={(0, 1): 5.0})
    report = report_of([run])
    assert report.searches[0][1].answer.unclear
    content = PANELS["suspects"].build(report)
    assert content is not None
    (block,) = content["blocks"]
    assert "annot be told: " in block["message"]
    assert "cannot be told" not in dict(block["facts"])


# --- evidence


def test_both_directions_at_once_are_no_second_sentence() -> None:
    (suspect,) = answer(cluster(4, 1, 5), Fault("host", (2,), 2), both=True).suspects
    assert suspect.evidence == (
        "all its links are at 50 % of the median (3 of 3 pairs), also both directions at once"
    )
    (suspect,) = answer(cluster(4, 1, 5), Fault("link", (0, 3), 2, of_hosts=True), both=True).suspects
    assert suspect.evidence == "50 % of the median, also both directions at once"


@pytest.mark.parametrize(
    ("where", "fault", "said"),
    [
        (cluster(1, 6, 5), Fault("rank", (2,), 3, "out"), "all that it sends inside its host is at 33 %"),
        (cluster(1, 6, 5), Fault("rank", (2,), 3, "in"), "all that it receives inside its host is at 33 %"),
        (cluster(4, 1, 5), Fault("host", (2,), 4, "out"), "all that it sends is at 25 %"),
        (
            cluster(3, 4, 5),
            Fault("rank", (5,), 4, "in", inside_too=False),
            "all that it receives from other hosts is at 25 %",
        ),
        (cluster(4, 1, 5), Fault("host", (2,), 500), "all its links are at 0.2 % of the median"),
    ],
)
def test_evidence_is_a_sentence(where: object, fault: object, said: str) -> None:
    (suspect,) = answer(where, fault).suspects
    assert suspect.evidence.startswith(said), suspect.evidence


def test_terminal_names_a_single_direction() -> None:
    lines = suspect_lines(answer(cluster(4, 1, 5), Fault("link", (3, 1), 4, "one", of_hosts=True)), [])
    assert lines[0].startswith("link 3>1 on node-1 and node-3: 3.99x time")


# --- nobody


@pytest.mark.parametrize(("spread", "said"), [(1.5, "nothing short of a stop would have been found")])
def test_of_very_unsteady_readings_no_factor_is_promised(spread: float, said: str) -> None:
    generator = np.random.default_rng(1)
    links = [
        LinkSamples(src, dst, np.exp(generator.normal(0, spread, 4)), np.full(4, 10.0))
        for src in range(3)
        for dst in range(3)
        if src != dst
    ]
    found = attribute(Evidence(Places((0, 0, 0), ("a",)), links))
    assert found.would_find is not None
    assert found.would_find >= 100
    assert said in found.message
    assert "e+" not in found.message


# --- what was looked at


def test_pairs_are_counted_of_all_ranks() -> None:
    evidence = only(table(cluster(1, 3, 5), [], QUIET, np.random.default_rng(1)), (0, 2), (2, 0))
    found = attribute(evidence)
    assert found.looked_at.startswith("2 of 6 ordered pairs of 3 ranks, 5 rounds")
    assert found.not_looked_at == (
        "4 of 6 ordered pairs, all of rank 1 among them: a slow link among these is not seen"
    )
    grid = matrix_lines(link_rows(evidence), evidence.places)
    assert "# not in the table: rank 1: no link of it was measured" in grid


def test_where_one_rank_speaks_for_each_host_pairs_are_of_hosts() -> None:
    whole = table(cluster(3, 2, 1), [], QUIET, np.random.default_rng(1))
    evidence = only(whole, (0, 2), (2, 0))
    found = attribute(evidence)
    assert found.looked_at.startswith("2 of 6 ordered pairs of 3 hosts, 1 round")
    assert "4 of 6 ordered pairs, all of node-2 among them: " in found.not_looked_at
    assert "links of 3 of 6 ranks: one spoke for each host" in found.not_looked_at
    grid = matrix_lines(link_rows(evidence), evidence.places)
    assert "# not in the table: ranks 1, 3, 5: one rank speaks for each host" in grid
    assert "# not in the table: rank 4: no link of it was measured" in grid
    assert attribute(whole).not_looked_at == ""
    assert speakers({0, 3}, whole.places) == tuple(range(6))


def test_nothing_looked_at_is_no_empty_line() -> None:
    evidence = evidence_of(make_search(hosts=3))
    found = attribute(Evidence(evidence.places, []))
    assert suspect_lines(found, [found.not_looked_at]) == [
        "# not looked at: 6 of 6 ordered pairs: a slow link among these is not seen"
    ]
    assert matrix_lines([], evidence.places) == []


def test_a_slow_link_keeps_its_digits_in_the_table() -> None:
    evidence = table(
        cluster(3, 1, 5), [Fault("link", (0, 2), 1000, of_hosts=True)], QUIET, np.random.default_rng(1)
    )
    line = matrix_lines(link_rows(evidence), evidence.places)[2]
    assert float(line.split()[-1].rstrip("!")) > 0


# --- names of hosts for other programs


def test_only_names_of_hosts_are_given_to_other_programs() -> None:
    good = ["node-01", "gpu_3.dc7.example.com", "10.0.0.1", "a"]
    bad = [
        "-node",
        "no\nde",
        "a b",
        "x\x1b[31m",
        "",
        "node-",
        "a..b",
        ".a",
        "a.",
        "n\u00f6",
        "a#1",
        "a" * 254,
        "a\n",
    ]
    assert split_names([*good, *bad]) == (good, bad)
    line = not_drained(["no\nde\x1b[31m", "-c"])
    assert line.isprintable()
    assert "'-c'" in line


def test_hosts_to_drain_are_names() -> None:
    run = make_search(names=["-a", "b", "c\n", "d"], slow_hosts={0: 4.0})
    lines = suspect_lines(attribute(evidence_of(run)), [])
    assert not any(line.startswith("# hosts to drain") for line in lines)
    assert any("not to be drained by name" in line and "'-a'" in line for line in lines)


def test_report_says_how_often_a_name_is_wrong_also_of_few_ranks() -> None:
    text = page_of(make_search(hosts=3)).text
    assert "at most one healthy cluster of 500, however many ranks and links it has" in text
    assert "on two hosts, or with two or three ranks, it is more often, up to one in 20" in text
