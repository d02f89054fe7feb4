"""Ranks that share a GPU: times are real, bandwidth is none, and pages, rows and terminal say so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import p2p_fixtures
import pytest
import transport_fixtures
from searching_fixtures import make_search
from sweeping import run

from ncclbench.report.build import render, report_of
from ncclbench.stats.p2p import p2p_of
from ncclbench.stats.transport import transfer_rows
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

WORDS = "anks share a GPU: no bandwidth figures"


def shared(run: Run) -> Run:
    return replace(run, plan=replace(run.plan, share_gpu=True))


@pytest.mark.parametrize(
    "make",
    [
        p2p_fixtures.make_p2p,
        transport_fixtures.make_transport,
        lambda: make_search(kind="matrix", hosts=2, ranks_per_host=2),
    ],
    ids=["p2p", "transport", "matrix"],
)
def test_the_page_says_so(make: Callable[[], Run]) -> None:
    made = make()
    assert WORDS not in render(report_of([made]))
    assert WORDS in render(report_of([shared(made)]))


def test_p2p_rows_have_times_and_no_bandwidth() -> None:
    results = p2p_fixtures.make_results()
    apart, together = p2p_of(results).rows, p2p_of(results, share_gpu=True).rows
    assert all(row["bandwidth_GBs"] for row in apart)
    assert [row["bandwidth_GBs"] for row in together] == [None] * len(apart)
    assert [row["latency_us"] for row in together] == [row["latency_us"] for row in apart]


def test_transport_rows_have_times_and_no_bandwidth() -> None:
    results = transport_fixtures.make_results()
    rows = [row for row in transfer_rows(results, share_gpu=True) if row.total_us is not None]
    assert rows
    assert {row.GBs for row in rows} == {None}
    assert any(row.GBs for row in transfer_rows(results))


@pytest.mark.full
def test_a_search_says_so_and_its_run_keeps_it(tmp_path: Path) -> None:
    words = ("matrix", "--quick", "--share-gpu", "--nproc-per-node", "2", "--backends", "gloo")
    outcome = run(sys.executable, "-m", "ncclbench", *words, "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert f"r{WORDS}" in outcome.out
    assert load_run(tmp_path / "run").plan.share_gpu
