"""What grows with the number of ranks, and how: benchmarks/scale.py at sizes that take seconds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from attributing import load
from report_reading import figures_of, page_of
from sweeping import run

from ncclbench.report.build import write_report
from ncclbench.report.panels.ranks import MOST_RANKS
from ncclbench.store.reader import load_run
from ncclbench.worker.control import LAZY_FROM

counting = load("_counting_store", "_counting_store")
scale = load("scale", "scale_benchmark")

LARGE = pytest.param(16_384, marks=[pytest.mark.full, pytest.mark.timeout(900)])


def traffic(nranks: int) -> dict[str, Any]:
    found, _ = counting.traffic_of(scale.plan_of(nranks, "all"), scale.LOCAL_RANKS)
    return {part.what: part for part in found}


@pytest.fixture(scope="module")
def of_64() -> dict[str, Any]:
    return traffic(64)


@pytest.mark.parametrize("nranks", [256, 1024, LARGE])
def test_the_store_is_asked_no_more_by_each_of_many_ranks(nranks: int, of_64: dict[str, Any]) -> None:
    more = nranks / 64
    for what, part in traffic(nranks).items():
        few = of_64[what]
        assert part.other[0] <= few.other[0] + 2, what
        assert part.other[1] <= 1.2 * few.other[1] + 64, what
        assert part.operations <= 1.1 * more * few.operations, what
        assert part.nbytes <= 1.25 * more * few.nbytes, what
        # Rank 0 hears each of the others once.
        assert part.leader[0] <= 1.1 * more * few.leader[0] + 2, what


def test_many_that_wait_look_at_the_store_no_oftener_in_all_than_it_can_answer() -> None:
    rates = [counting.Simulation(scale.plan_of(n), scale.LOCAL_RANKS).looks_per_s() for n in (64, 16_384)]
    assert rates == pytest.approx([1280, 20_000])


@pytest.mark.parametrize("nranks", [256, 1024, LARGE])
def test_a_rank_s_own_work_grows_with_the_ranks_and_not_with_their_square(nranks: int) -> None:
    took_s = scale.rank_work(nranks)
    assert set(took_s) >= {"parts in topologies", "expected of all_to_allv", "groups (fake)"}
    # Ten times what it takes on an idle machine, where a square would take hundreds of times as much.
    assert sum(took_s.values()) < 0.5 + 4 * nranks / 16_384


@pytest.mark.parametrize("nranks", [64, LARGE])
def test_a_unit_takes_bytes_by_its_samples(nranks: int) -> None:
    found = scale.gather_unit(nranks)
    assert found["bytes_per_rank"] == scale.gather_unit(8)["bytes_per_rank"] < 1000
    # Copies of the unit: as it came, as one array, in microseconds, as text.
    assert found["MB_more"] < 20 * nranks * found["bytes_per_rank"] / 1e6 + 8


@pytest.mark.full
def test_gloo_connects_many_ranks_only_as_they_talk() -> None:
    """With a store that counts what all ranks together read."""
    script = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "import os\n"
        "from multiprocessing import get_context\n"
        "from datetime import timedelta\n"
        "from torch.distributed import TCPStore\n"
        "from ncclbench.supervise.store_process import StoreProcess\n"
        "from ncclbench.worker import control\n"
        "from connecting import Counted\n"
        "control.LAZY_FROM = int(sys.argv[3])\n"
        "NRANKS = int(sys.argv[4])\n"
        "def rank(number, port, told):\n"
        "    store = Counted(TCPStore('127.0.0.1', port, is_master=False, timeout=timedelta(seconds=60)))\n"
        "    plane = control.ControlPlane(store, number, NRANKS, 60.0)\n"
        "    assert plane.share(7) == 7 and 'TORCH_GLOO_LAZY_INIT' not in os.environ\n"
        "    assert plane.gather(number) in (None, list(range(NRANKS)))\n"
        "    told.put(store.gets)\n"
        "    plane.maximum(number)\n"
        # Not in this process, which forks.
        "master = StoreProcess('127.0.0.1', 0, 60.0)\n"
        "context = get_context('fork')\n"
        "told = context.Queue()\n"
        "ranks = [context.Process(target=rank, args=(n, master.address[1], told)) for n in range(NRANKS)]\n"
        "for each in ranks: each.start()\n"
        "print(sum(told.get(timeout=60) for _ in ranks))\n"
        "for each in ranks: each.join()\n"
    )
    here, nranks = Path(__file__).parent, 8

    def reads(lazy_from: int) -> int:
        command = [sys.executable, "-c", script, here, here.parent, lazy_from, nranks]
        outcome = run(*map(str, command), env={"GLOO_SOCKET_IFNAME": "lo"})
        assert outcome.code == 0, outcome.err
        return int(outcome.out)

    assert reads(LAZY_FROM) >= nranks**2, "each reads where each of the others is"
    # Down a tree, all to rank 0, round a ring; each pair reads both ends.
    assert reads(2) <= 5 * nranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "run"
    scale.write_run(folder, 512)
    return folder


def test_a_page_of_many_ranks_shows_hosts_the_worst_first(folder: Path) -> None:
    loaded = load_run(folder)
    page = folder / "report.html"
    write_report([loaded], page)
    assert page.stat().st_size < 2.5e6
    figure = figures_of(loaded)["rank-map"]
    plot = next(plot for family in figure.plots.values() for plot in family.values())
    names = plot.data[0]["y"]
    assert names[0].startswith(f"node{scale.SLOW_HOST:04d}, rank ")
    assert len(names) == min(MOST_RANKS, 512 // scale.LOCAL_RANKS)
    assert "of 64 hosts, furthest from the middle first" in plot.note
    text = page_of(loaded).text
    assert "6.1.0-13" in text, "the odd kernel is told"
    assert text.count("node") < 300, "hosts are folded"


def limits(found: dict[str, float], nranks: int) -> None:
    assert found["page_MB"] < 2.5
    assert found["peak_MB"] < 2000
    # Processor time: by the clock others may have the machine.
    busy_s = sum(value for name, value in found.items() if name.endswith("processor_s"))
    assert busy_s < 6 + 54 * nranks / 16_384


@pytest.mark.parametrize("nranks", [256, LARGE])
def test_a_run_is_read_and_told_in_time_and_memory(nranks: int, tmp_path: Path) -> None:
    limits(scale.aggregate(nranks, tmp_path / "run"), nranks)


@pytest.mark.parametrize("more", scale.EVERYTHING)
def test_16384_ranks_are_planned_in_two_seconds_and_300_MB(more: tuple[str, ...]) -> None:
    found = scale.make_plan(16_384, *more)
    assert found["rows"] >= 48
    # Processor time: by the clock others may have the machine.
    assert found["processor_s"] < 2.0
    assert found["peak_MB"] < 300
