"""The parts of ``groups`` without processes: who crosses, how communicators are told, what numbers mean."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from groups_fixtures import MIB, make_cell, make_costs, make_groups, make_reading, make_results, make_times

from ncclbench.cells.crossing import cannot_end, who_crosses
from ncclbench.errors import RequestError
from ncclbench.stats.group_costs import at_once_rows, cost_rows, crossed_rows, groups_of, leaks
from ncclbench.store.p2p import ArmFound
from ncclbench.tables.groups import MOMENTS, SINGLETON, parse_kind
from ncclbench.tables.topologies import Groups, Placement, parse_topology
from ncclbench.terminal.groups import groups_lines, sentences
from ncclbench.units import format_memory
from ncclbench.worker import communicators as counting
from ncclbench.worker.communicators import NcclLog, communicators
from ncclbench.worker.footprint import footprint


def cuts(*names: str, nranks: int) -> list[Groups]:
    place = Placement((0,) * nranks)
    found = [cut.groups(place) for name in names for cut in parse_topology(name)]
    return [groups for groups in found if not isinstance(groups, str)]


class TestCrossing:
    @pytest.mark.parametrize(
        ("names", "nranks"),
        [
            (("world", "world"), 2),
            (("halves", "halves"), 4),
            (("mesh:dp=2,tp=2",), 4),
            (("mesh:dp=2,tp=4",), 8),
            (("mesh:dp=3,tp=2",), 6),
            (("mesh:a=2,b=2,c=2",), 8),
            (("pairs", "ring"), 4),
            (("world", "halves"), 4),
        ],
    )
    def test_who_crosses_makes_calls_that_block_wait_for_ever(
        self, names: tuple[str, ...], nranks: int
    ) -> None:
        groups = cuts(*names, nranks=nranks)
        crossing = who_crosses(groups, nranks)
        assert 0 < len(crossing) < nranks
        assert cannot_end(groups, crossing, nranks)
        assert not cannot_end(groups, frozenset(), nranks)

    def test_groups_that_share_one_rank_at_most_may_end_in_any_order(self) -> None:
        groups: list[Groups] = [((0, 1),), ((1, 2),)]
        assert not cannot_end(groups, frozenset({0, 1, 2}), 3)
        assert not cannot_end(groups, who_crosses(groups, 3), 3)


class TestCommunicators:
    def made(self, name: str, **attributes: Any) -> Any:
        return type(name, (), attributes)()

    def count(self, backends: list[Any], log: tuple[int | None, int | None], met: int = 3) -> Any:
        before, after = ({"connections": count} for count in (4, 10))
        return communicators(backends, log, (before, after), met)  # type: ignore[arg-type]

    def test_connections_of_gloo(self) -> None:
        assert self.count([self.made("ProcessGroupGloo")], (None, None)) == (6, counting.BY_CONNECTIONS)

    def test_lines_of_the_log_count_where_there_are_any(self) -> None:
        assert self.count([self.made("ProcessGroupNCCL2")] * 2, (1, 3)) == (2, counting.BY_LOG)

    def test_the_class_tells_where_the_user_has_the_log(self) -> None:
        split = {"comm_split_count": lambda self: 0}
        lazy = self.made("ProcessGroupNCCL", bound_device_id=None, **split)
        eager = self.made("ProcessGroupNCCL", bound_device_id=torch.device("cuda:0"), **split)
        new = self.made("ProcessGroupNCCL", bound_device_id=None)
        pairs = self.made("ProcessGroupNCCLLazy", _num_active_channels=lambda self: 2)
        counts = [self.count([each], (None, None)) for each in (lazy, eager, new, pairs)]
        assert counts == [(count, counting.BY_CLASS) for count in (4, 1, 1, 3)]

    def test_unknown_ones_are_not_guessed(self) -> None:
        assert self.count([self.made("ProcessGroupUCC")], (None, None)) == (None, counting.UNKNOWN)

    def test_the_log_is_in_memory_and_read_while_it_grows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
            monkeypatch.delenv(name, raising=False)
        log = NcclLog()
        path = Path(os.environ["NCCL_DEBUG_FILE"])
        assert log.made() == 0
        with path.open("w") as file:
            file.write("host:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 - Init COMPLETE\n" * 3)
        assert log.made() == 3
        for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
            monkeypatch.delenv(name, raising=False)

    def test_what_the_user_has_set_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NCCL_DEBUG", "WARN")
        assert NcclLog().made() is None
        assert os.environ["NCCL_DEBUG"] == "WARN"


class TestFootprint:
    def test_files_and_memory_are_seen(self, tmp_path: Path) -> None:
        before = footprint(torch.device("cpu"))
        held = [(tmp_path / str(number)).open("w") for number in range(7)]
        tensor = torch.ones(64 << 20, dtype=torch.uint8)
        after = footprint(torch.device("cpu"))
        assert (after["files"] or 0) - (before["files"] or 0) == len(held)
        assert (after["rss_bytes"] or 0) - (before["rss_bytes"] or 0) > tensor.numel() // 2
        assert after["device_bytes"] is after["backend_bytes"] is None
        for file in held:
            file.close()

    def test_what_backends_say_is_added_up_unless_one_says_nothing(self) -> None:
        says = SimpleNamespace(memory_stats=lambda: {"total": 5, "suspend": 3})
        parts = SimpleNamespace(memory_stats=lambda: {"a": 1, "b": 2})
        cpu = torch.device("cpu")
        assert footprint(cpu, [says, parts])["backend_bytes"] == 8
        assert footprint(cpu, [says, SimpleNamespace()])["backend_bytes"] is None


class TestRows:
    def test_costs_are_sums_over_groups_and_medians_over_epochs(self) -> None:
        lines = [make_costs(8, epoch, slower) for epoch, slower in enumerate((1.0, 1.0, 4.0))]
        (row,) = cost_rows(lines)
        assert (row["total_us"], row["per_group_us"], row["first_group_us"]) == (28000, 3500, 1000)
        assert (row["new_us"], row["first_us"], row["p2p_us"]) == (8000, 16000, 4000)
        assert (row["rss_bytes"], row["peak_bytes"]) == (8 * MIB, 16 * MIB)
        assert (row["files"], row["threads"], row["connections"], row["communicators"]) == (40, 24, 8, 8)
        assert (row["leaked_files"], row["leaked_rss_bytes"], leaks(row)) == (0, 0, [])
        assert row["ratio"] is None

    def test_arms_are_held_against_the_first_epoch_by_epoch(self) -> None:
        lines = [
            make_costs(8, epoch, slower=slower * (epoch + 1), arm=arm)
            for arm, slower in (("gloo", 1.0), ("gloo#2", 2.0))
            for epoch in range(3)
        ]
        base, new = cost_rows(lines)
        assert (base["base"], base["ratio"]) == ("gloo", None)
        assert (new["base"], new["ratio"]) == ("gloo", pytest.approx(2.0))
        assert new["ratio_ci_low"] == pytest.approx(2.0) == new["ratio_ci_high"]

    def test_the_base_is_the_arm_asked_for_first_whichever_was_measured_first(self) -> None:
        lines = [make_costs(8, epoch, arm=arm) for arm in ("gloo#2", "gloo") for epoch in range(3)]
        rows = groups_of(make_groups(results=lines).results_by_arm).rows
        assert [(row["arm"], row["base"]) for row in rows] == [("gloo", "gloo"), ("gloo#2", "gloo")]

    def test_what_stays_is_of_the_worst_rank_and_is_said(self) -> None:
        readings = {moment: make_reading() for moment in MOMENTS}
        readings["destroyed"] = make_reading(files=23, threads=7, connections=4)
        (row,) = cost_rows([make_costs(readings=readings)])
        assert leaks(row) == ["3 open files", "1 threads"]
        said = sentences(groups_of([make_costs(readings=readings)]))
        assert "3 open files, 1 threads stay on a rank when 8 groups on gloo by new_group have ended" in said

    def test_device_memory_and_suspending_where_there_are_any(self) -> None:
        readings = {
            moment: make_reading(device_bytes=MIB * (5 if moment == "used" else 1)) for moment in MOMENTS
        }
        readings["used"] = make_reading(device_bytes=5 * MIB, backend_bytes=3 * MIB)
        times = {"suspend_us": [10.0] * 8, "resume_us": [20.0] * 8}
        (row,) = cost_rows([make_costs(readings=readings, **times)])
        assert (row["device_bytes"], row["backend_bytes"], row["leaked_device_bytes"]) == (
            4 * MIB,
            3 * MIB,
            0,
        )
        assert (row["suspend_us"], row["resume_us"]) == (80, 160)

    def test_slowdown_is_at_once_over_alone_paired_by_epoch(self) -> None:
        rows = at_once_rows([make_times(0, epoch, together_us=[200.0 + epoch] * 2) for epoch in range(3)])
        assert rows[0]["slowdown"] == pytest.approx(2.01, abs=0.01)
        assert 1.95 < rows[0]["ci_low"] <= rows[0]["slowdown"] <= rows[0]["ci_high"] < 2.1
        (untimed,) = at_once_rows([make_times(alone_us=None)])
        assert untimed["slowdown"] is untimed["alone_us"] is None

    def test_orders_say_from_which_size_on(self) -> None:
        rows = {row["order"]: row for row in crossed_rows([line for line in make_results() if line in CELLS])}
        assert (rows["crossed"]["outcome"], rows["crossed"]["completed_to_nbytes"]) == ("deadlocked", None)
        last = rows["crossed-async"]
        assert (last["outcome"], last["from_nbytes"], last["completed_to_nbytes"]) == (
            "raised",
            4 * MIB,
            65536,
        )
        assert (rows["same"]["safe"], rows["crossed"]["safe"]) == (True, False)


CELLS = [line for line in make_results() if type(line) is type(make_cell())]


def test_words_of_every_part() -> None:
    found = groups_of(make_results())
    text = "\n".join(groups_lines(found))
    assert "# nccl2: not here: needs a CUDA device" in text
    assert "# gloo by new_group, world groups of 4 ranks" in text
    costs = [line for line in text.split("#\n# gloo, ")[0].splitlines() if "communicators:" not in line]
    assert max(map(len, costs)) <= 88, "three tables that can be read, not one of 170 columns"
    assert "# left out: costs on gloo#2: split_group: it cannot split" in text
    said = sentences(found)
    assert said[0].startswith(
        "32 groups on gloo by new_group: 32 connections a rank, 32 MiB of host memory, "
    )
    assert "gloo#2 takes 2.10x the time of gloo (1.86 to 2.36) for 8 groups" in " ".join(said)
    assert any(
        line.startswith("2 groups at once on gloo: the one of ranks 0,1 takes up to 1.5") for line in said
    )
    assert "deadlocked on gloo: crossed" in said
    assert sentences(groups_of([ArmFound(arm="a", implementation="b", device="cpu", reason=None)])) == [
        "nothing was measured"
    ]


def test_wrong_data_and_leftovers_come_first() -> None:
    found = groups_of([make_times(wrong=2), make_cell(leftover_processes=1, wrong=1)])
    assert sentences(found)[:2] == [
        "WRONG DATA in 3 elements: group of ranks 0-1 in halves on gloo, 64K; order crossed on gloo, 64K",
        "1 processes left behind",
    ]


def test_of_many_groups_with_wrong_data_the_worst_are_named() -> None:
    found = groups_of([make_times(number=place, ranks=[place], wrong=1 + place) for place in range(7)])
    (said, *_) = sentences(found)
    assert said.startswith(
        "WRONG DATA in 28 elements: group of rank 6 in halves on gloo, 64K; group of rank 5"
    )
    assert said.endswith(" and 3 more")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (-3 * MIB, "-3 MiB"), (7 << 40, "7168 GiB")],
)
def test_bytes_in_the_unit_that_suits(nbytes: int, text: str) -> None:
    assert format_memory(nbytes) == text


def test_kinds_are_topologies_of_one_cut_or_singletons() -> None:
    assert parse_kind("singleton") is SINGLETON
    assert SINGLETON.groups(Placement((0, 0, 0))) == ((0,), (1,), (2,))
    assert parse_kind("mesh:dp=2,tp=2@tp").name == "mesh:dp=2,tp=2@tp"
    with pytest.raises(RequestError, match="stands for 2 cuts"):
        parse_kind("mesh:dp=2,tp=2")
