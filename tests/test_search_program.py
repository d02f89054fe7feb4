"""What a search keeps: lines survive the disk, damaged ones are refused by number, all become evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.evidence import arrivals_of, evidence_of, gathered, places_of, wrong_pairs
from ncclbench.attribution.links import link_rows
from ncclbench.attribution.model import Places
from ncclbench.errors import RequestError
from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import RUN_SCHEMA
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest
from ncclbench.store.reader import load_run

TWO = Places((0, 1), ("a", "b"))


def pair(**changes: Any) -> PairTest:
    usual = {"turn": 0, "src": 0, "dst": 1, "nbytes": 1024, "latency_us": 5.0}
    return PairTest(**{**usual, "alone_GBs": 1.0, "both_GBs": 0.5, "wrong": False, **changes})


TESTS: list[Probe] = [
    pair(),
    pair(src=1, dst=0, alone_GBs=2.0, wrong=True),
    RankTest(turn=0, rank=0, compute_us=7.0),
    RankTest(turn=0, rank=1, compute_us=8.0, to_device_GBs=50.0, from_device_GBs=51.0),
    WaitTest(turn=0, rank=0, op="all_reduce", waits_us=[9.0, 1.0]),
    WaitTest(turn=0, rank=1, op="all_reduce", waits_us=[1.0, 2.0]),
    SubsetTest(turn=0, op="all_to_all", ranks=[0, 1], nbytes=64, times_us=[3.0], iterations=1),
]


def kept(path: Path, tests: list[Probe], nranks: int = 2) -> Path:
    """A search's run folder with these lines, through the real writer."""
    meta = {
        "schema": RUN_SCHEMA,
        "kind": "suspects",
        "plan": unplanned((Arm("gloo", "gloo"),), nranks).to_json(),
        "status": "complete",
    }
    with RunFolder.create(path) as folder, folder.samples() as samples:
        folder.write_meta(meta)
        samples.append(b"".join(map(encode_line, tests)))
    return path


# --- on disk


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    run = load_run(kept(tmp_path / "run", TESTS))
    assert run.probes == TESTS
    assert run.problems == []


def test_a_torn_last_line_is_dropped_and_told(tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", TESTS)
    samples = folder / "samples.jsonl"
    samples.write_bytes(samples.read_bytes()[:-9])
    run = load_run(folder)
    assert run.probes == TESTS[:-1]
    assert any("torn" in problem for problem in run.problems)


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (0, lambda line: line | {"alone_GBs": -1.0}),
        (0, lambda line: line | {"alone_GBs": "fast"}),
        (0, lambda line: line | {"latency_us": None}),
        (0, lambda line: line | {"src": -1}),
        (0, lambda line: line | {"wrong": 2}),
        (0, lambda line: line | {"turn": 1.5}),
        (0, lambda line: {key: line[key] for key in line if key != "both_GBs"}),
        (2, lambda line: line | {"compute_us": [1.0]}),
        (2, lambda line: line | {"rank": True}),
        (4, lambda line: line | {"waits_us": []}),
        (4, lambda line: line | {"waits_us": [1.0, "2"]}),
        (6, lambda line: line | {"ranks": []}),
        (6, lambda line: line | {"ranks": [0, -1]}),
        (6, lambda line: line | {"times_us": [-3.0]}),
        (6, lambda line: line | {"type": "set"}),
    ],
)
def test_a_damaged_line_is_refused_by_number(
    tmp_path: Path, at: int, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    folder = kept(tmp_path / "run", TESTS)
    samples = folder / "samples.jsonl"
    text = samples.read_text().splitlines()
    text[at] = json.dumps(change(json.loads(text[at])))
    samples.write_text("\n".join(text) + "\n")
    with pytest.raises(RequestError, match=f"samples.jsonl line {at + 1} is damaged") as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


ANY_NUMBER = st.one_of(
    st.integers(-2, 9),
    st.sampled_from([2**31, 2**63, 10**30, 1e308, 5e-324, 0.0]),
    st.none(),
    st.text(max_size=3),
)


@given(
    at=st.integers(0, len(TESTS) - 1),
    key=st.sampled_from(
        ["turn", "src", "dst", "rank", "alone_GBs", "compute_us", "waits_us", "ranks", "times_us"]
    ),
    value=st.one_of(ANY_NUMBER, st.lists(ANY_NUMBER, max_size=4)),
)
@settings(max_examples=150, deadline=None)
def test_whatever_a_line_holds_gives_an_answer_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, at: int, key: str, value: Any
) -> None:
    folder = kept(tmp_path_factory.mktemp("damage") / "run", TESTS)
    samples = folder / "samples.jsonl"
    text = samples.read_text().splitlines()
    text[at] = json.dumps(json.loads(text[at]) | {key: value})
    samples.write_text("\n".join(text) + "\n")
    try:
        evidence = evidence_of(load_run(folder))
    except RequestError as error:
        lines = str(error).splitlines()
    else:
        lines = [attribute(evidence).message]
        json.dumps(link_rows(evidence), allow_nan=False)
    assert len(lines) == 1


# --- as evidence


def test_a_pass_that_lacks_a_test_and_wrong_data_are_no_numbers() -> None:
    tests = [pair(turn=2, alone_GBs=3.0), pair(), pair(turn=1, alone_GBs=9.0, wrong=True)]
    (link,) = gathered([*tests, pair(turn=3, src=1, dst=0)], TWO).links[:1]
    assert (link.src, link.dst) == (0, 1)
    np.testing.assert_array_equal(link.bandwidth_GBs, [1.0, np.nan, 3.0, np.nan])
    np.testing.assert_array_equal(link.latency_us, [5.0, np.nan, 5.0, np.nan])
    assert link.both_GBs is not None
    np.testing.assert_array_equal(link.both_GBs, [0.5, np.nan, 0.5, np.nan])


def test_a_link_of_wrong_data_alone_has_no_speed() -> None:
    rows = link_rows(gathered([pair(wrong=True), pair(src=1, dst=0)], TWO))
    assert [row["bandwidth_GBs"] for row in rows] == [None, 1.0]
    assert not any(row["odd"] for row in rows)


def test_copies_are_none_where_no_rank_has_a_device() -> None:
    (rank,) = gathered([TESTS[2]], TWO).ranks
    assert (rank.h2d_GBs, rank.d2h_GBs) == (None, None)
    with_device = gathered([TESTS[3]], TWO).ranks[0]
    assert with_device.h2d_GBs is not None
    np.testing.assert_array_equal(with_device.h2d_GBs, [50.0])


def test_the_last_to_arrive_is_the_one_that_waits_least() -> None:
    waits = np.array([[10.0, 30.0, 31.0, 30.0], [40.0, 1.0, 2.0, 40.0], [40.0, 30.0, 30.0, 1.0]])
    found = arrivals_of(waits, "all_reduce", 8)
    assert found.last == (1, 2, 1)
    assert found.iterations == 4
    # By how much it came later than the median rank, the median of the four.
    np.testing.assert_allclose(found.lateness_us, [0.0, 14.0, 0.0])


def test_a_slow_rank_is_late_by_what_its_work_takes_longer() -> None:
    random = np.random.default_rng(0)
    come = 4000 * np.exp(random.normal(0, 0.01, (4, 60)))
    come[2] *= 1.9
    found = arrivals_of(20 + come.max(axis=0) - come, "all_reduce", 0)
    assert found.last == (0, 0, 60, 0)
    assert found.lateness_us[2] == pytest.approx(3600, rel=0.02)


def test_equal_names_of_hosts_are_told_apart_and_order_is_the_ranks() -> None:
    environment = {
        "hosts": [{"name": "box"}, {"name": "node"}, {"name": "box"}, {}],
        "ranks": [
            {"rank": 1, "host": 2},
            {"rank": 0, "host": 0},
            {"rank": 2, "host": 1},
            {"rank": 3, "host": 3},
        ],
    }
    assert places_of(environment, 4) == Places((0, 2, 1, 3), ("box#1", "node", "box#2", "host 3"))
    assert places_of({}, 2) == Places((0, 0), ("this host",))
    assert places_of(environment | {"hosts": [{"name": "a"}] * 4}, 5).hosts[4] == "a host not told"


def test_wrong_pairs_are_named_once(tmp_path: Path) -> None:
    run = load_run(kept(tmp_path / "run", [*TESTS, pair(turn=1, src=1, dst=0, wrong=True)]))
    assert wrong_pairs(run) == [(1, 0)]
