"""From a selection to a plan: order, trimming, reasons for skipping, defaults, arms and memory."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ncclbench.errors import RequestError
from ncclbench.plan import machine, memory
from ncclbench.plan.arms import arms_device, find_base, parse_arms
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.machine import Machine
from ncclbench.plan.model import Arm, Case, Device, Plan
from ncclbench.plan.schedule import usual_visits, visit_order
from ncclbench.plan.sizes import parse_sizes
from ncclbench.tables.backends import BACKENDS
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.redops import REDOPS

GLOO = (Arm("gloo", "gloo"),)
TWO = (Arm("gloo", "gloo"), Arm("gloo#2", "gloo"))


def plan_of(
    *,
    nranks: int = 2,
    arms: tuple[Arm, ...] = GLOO,
    device: Device = "cpu",
    method: Any = None,
    **selection: Any,
) -> Plan:
    selection.setdefault("sizes", (1024,))
    selection.setdefault("modes", ("isolated",))
    return build_plan(
        Selection(**selection), arms, nranks=nranks, local_ranks=nranks, device=device, method=method
    )


def reasons(plan: Plan) -> dict[str, str]:
    return {entry.case.op: str(entry.reason) for entry in plan.cases if entry.status == "skipped"}


class TestCases:
    def test_sizes_run_innermost_and_operations_outermost(self) -> None:
        plan = plan_of(
            ops=("all_reduce", "broadcast"),
            sizes=(8, 16),
            modes=("isolated", "back-to-back"),
            redops=("sum", "max"),
        )
        order = [(case.op, case.redop, case.mode, case.nbytes) for case in plan.planned]
        expected = [
            ("all_reduce", redop, mode, nbytes)
            for redop in ("sum", "max")
            for mode in ("isolated", "back-to-back")
            for nbytes in (8, 16)
        ]
        # broadcast reduces nothing: one row, not one per operator.
        expected += [
            ("broadcast", None, mode, nbytes) for mode in ("isolated", "back-to-back") for nbytes in (8, 16)
        ]
        assert order == expected

    def test_sizes_are_whole_elements_per_rank_and_never_rounded_to_16(self) -> None:
        (case,) = plan_of(ops=("all_gather",), sizes=(101,), nranks=3).planned
        assert (case.nbytes, case.count) == (96, 8)

    def test_sizes_that_trim_to_the_same_bytes_are_one_row(self) -> None:
        plan = plan_of(sizes=(8, 9, 10, 12))
        assert [case.nbytes for case in plan.planned] == [8, 12]

    def test_a_size_below_one_element_per_rank_is_skipped_not_measured_as_nothing(self) -> None:
        plan = plan_of(ops=("all_gather",), sizes=(4, 8), nranks=2)
        small, whole = plan.cases
        assert (small.status, small.reason, small.case.nbytes) == ("skipped", "below one element per rank", 4)
        assert (whole.status, whole.reason, whole.case.count) == ("planned", None, 1)

    def test_barrier_is_one_row_whatever_sizes_types_and_forms(self) -> None:
        plan = plan_of(
            ops=("barrier",),
            sizes=(8, 16),
            dtypes=("float16", "int8"),
            redops=("sum", "max"),
            in_place=(False, True),
        )
        (case,) = plan.planned
        assert (case.nbytes, case.redop, case.root, case.in_place) == (0, None, None, False)

    def test_only_rooted_operations_have_roots(self) -> None:
        plan = plan_of(ops=("all_reduce", "broadcast"), roots=None, nranks=3)
        assert [(case.op, case.root) for case in plan.planned] == [
            ("all_reduce", None),
            *(("broadcast", root) for root in range(3)),
        ]

    def test_in_place_is_natural_unless_asked_for(self) -> None:
        plan = plan_of(ops=("all_reduce", "all_gather"))
        assert {case.op: case.in_place for case in plan.planned} == {"all_reduce": True, "all_gather": False}

    @pytest.mark.parametrize(
        ("selection", "nranks", "reason"),
        [
            ({"ops": ("all_reduce",), "in_place": (False,)}, 2, "the torch API has all_reduce in place only"),
            (
                {"ops": ("all_to_all",), "in_place": (True,)},
                2,
                "the torch API has all_to_all out of place only",
            ),
            ({"ops": ("reduce",), "redops": ("bxor",)}, 2, "bxor is not defined on float32"),
            ({"ops": ("send_recv",)}, 1, "send_recv needs at least 2 ranks"),
            ({"ops": ("all_gather",), "modes": ("graph",)}, 2, "graph needs CUDA"),
        ],
    )
    def test_what_cannot_be_measured_says_why(
        self, selection: dict[str, Any], nranks: int, reason: str
    ) -> None:
        (op,) = selection["ops"]
        # The barrier can be measured whenever the others cannot, so that the plan is not empty.
        selection["ops"] = (op, "barrier")
        selection["modes"] = (*selection.get("modes", ()), "isolated")
        plan = plan_of(nranks=nranks, **selection)
        assert reasons(plan)[op] == reason

    def test_graph_mode_is_planned_on_cuda(self) -> None:
        plan = plan_of(modes=("graph",), device="cuda", arms=(Arm("nccl2", "nccl2"),))
        assert [case.mode for case in plan.planned] == ["graph"]

    def test_nothing_to_measure_is_refused_with_the_reasons(self) -> None:
        with pytest.raises(RequestError, match=r"every case .* graph needs CUDA \(2\)"):
            plan_of(modes=("graph",), sizes=(8, 16))

    def test_every_combination_has_a_key_of_its_own_and_survives_json(self) -> None:
        plan = plan_of(
            ops=tuple(COLLECTIVES),
            dtypes=tuple(DTYPES),
            redops=tuple(REDOPS),
            roots=None,
            sizes=(2, 64, 4096),
            modes=("isolated", "back-to-back"),
            async_op=(False, True),
            in_place=(False, True),
            nranks=3,
        )
        keys = [entry.case.key for entry in plan.cases]
        assert len(set(keys)) == len(keys)
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan

    def test_ten_thousand_cases_take_well_under_a_second(self) -> None:
        started = time.process_time()
        plan = plan_of(
            ops=tuple(COLLECTIVES),
            dtypes=tuple(DTYPES),
            sizes=parse_sizes(),
            modes=("isolated", "back-to-back"),
        )
        assert len(plan.cases) > 10_000
        assert time.process_time() - started < 1.0


class TestMethod:
    def test_defaults_of_one_arm(self) -> None:
        plan = plan_of()
        assert (plan.iters, plan.epochs, plan.statistic, plan.base_arm) == (20, 3, "p25", "gloo")
        assert (plan.margin_ratio, plan.margin_us) == (0.03, 1.0)
        assert plan.rotation_bytes == Machine.here("cpu", 2).rotation_bytes("cpu", 2)

    def test_several_arms_get_more_epochs_and_iterations(self) -> None:
        plan = plan_of(arms=TWO)
        assert (plan.iters, plan.epochs) == (160, 8)

    def test_statistic_follows_the_device_unless_chosen(self) -> None:
        assert plan_of(device="cuda").statistic == "median"
        assert plan_of(device="cuda", method=Method(statistic="p90")).statistic == "p90"

    def test_few_iterations_mean_few_epochs(self) -> None:
        plan = plan_of(method=Method(iters=2))
        assert (plan.iters, plan.epochs) == (2, 2)
        assert sum(plan.iters_in_epoch(epoch) for epoch in range(plan.epochs)) == 2

    def test_many_epochs_mean_enough_iterations(self) -> None:
        plan = plan_of(method=Method(epochs=30))
        assert (plan.iters, plan.epochs) == (30, 30)

    def test_fewer_iterations_than_epochs_are_refused(self) -> None:
        with pytest.raises(RequestError, match="-n/--iters 4 is fewer than --epochs 8"):
            plan_of(method=Method(iters=4, epochs=8))

    @pytest.mark.parametrize("nranks", [1, 4])
    def test_a_root_outside_the_world_is_refused(self, nranks: int) -> None:
        with pytest.raises(RequestError, match=f"--root {nranks} is not in a world of {nranks} rank"):
            plan_of(ops=("broadcast",), roots=(0, nranks), nranks=nranks)


class TestArms:
    def test_default_follows_the_machine(self) -> None:
        assert parse_arms(None, None, "cpu") == GLOO
        assert parse_arms(None, None, "cuda") == (Arm("nccl2", "nccl2"),)

    def test_equal_arms_get_numbers(self) -> None:
        arms = parse_arms("gloo,nccl2, gloo,gloo", None, "cpu")
        assert [arm.id for arm in arms] == ["gloo", "nccl2", "gloo#2", "gloo#3"]
        assert [arm.backend for arm in arms] == ["gloo", "nccl2", "gloo", "gloo"]

    def test_backends_is_short_for_arms(self) -> None:
        assert parse_arms(None, "nccl2; nccl-legacy", "cuda") == parse_arms("nccl2,nccl-legacy", None, "cuda")

    @pytest.mark.parametrize(
        ("backends", "arms", "said"),
        [
            ("gloo", "gloo", "give one of them"),
            ("glo", None, "did you mean 'gloo'"),
            (None, "nccl-legasy", "did you mean 'nccl-legacy'"),
            ("gloo,,gloo", None, "empty entry"),
            ("", None, "empty entry"),
            (None, "gloo;", "empty entry"),
            (None, "nccl2 NCCL_ALGO", "unknown setting of an arm"),
        ],
    )
    def test_refused(self, backends: str | None, arms: str | None, said: str) -> None:
        with pytest.raises(RequestError, match=said):
            parse_arms(backends, arms, "cpu")

    def test_base_is_the_first_or_the_named_arm(self) -> None:
        assert find_base(TWO, None) == "gloo"
        assert find_base(TWO, "gloo#2") == "gloo#2"
        with pytest.raises(RequestError, match=r"unknown arm 'gloo#3': did you mean 'gloo#?2?'"):
            find_base(TWO, "gloo#3")

    def test_the_device_is_the_one_that_every_arm_can_use(self) -> None:
        assert arms_device(parse_arms("gloo", None, "cuda"), "cuda") == "cpu"
        assert arms_device(parse_arms("nccl2,ucc", None, "cuda"), "cuda") == "cuda"
        # Without a GPU the rest of the run goes on and the arm's rows say why it is not there.
        assert arms_device(parse_arms("gloo,nccl2", None, "cpu"), "cpu") == "cpu"

    def test_arms_that_share_no_memory_are_refused(self) -> None:
        with pytest.raises(RequestError, match="gloo works on CPU memory and nccl2 on GPU memory"):
            arms_device(parse_arms("gloo,nccl2", None, "cuda"), "cuda")

    def test_a_run_of_which_nothing_can_run_here_is_refused(self) -> None:
        with pytest.raises(RequestError, match="nccl2 needs a GPU and none is here"):
            arms_device(parse_arms("nccl2,nccl-legacy", None, "cpu"), "cpu")


def case(op: str, nbytes: int, *, in_place: bool = False, nranks: int = 4) -> Case:
    return Case(op, "float32", None, None, nbytes, 0, "world", "isolated", False, in_place, nranks)


class TestMemory:
    @pytest.mark.parametrize(
        ("op", "in_place", "slot"),
        [
            ("all_reduce", True, 4096),
            ("all_gather", False, 1024 + 4096),
            ("all_gather", True, 4096),
            ("reduce_scatter", False, 4096 + 1024),
            ("all_to_all", False, 2 * 4096),
            ("barrier", False, 0),
        ],
    )
    def test_a_slot_holds_both_buffers_unless_they_are_one(self, op: str, in_place: bool, slot: int) -> None:
        assert memory.slot_bytes(case(op, 4096 if slot else 0, in_place=in_place)) == slot

    def test_buffers_are_aligned(self) -> None:
        assert memory.slot_bytes(case("send_recv", 4)) == 2 * memory.ALIGNMENT

    def test_small_cases_rotate_past_the_cache_and_large_ones_have_two_slots(self) -> None:
        small, large = case("all_reduce", 1024, in_place=True), case("all_reduce", 1 << 20, in_place=True)
        assert memory.case_bytes(small, 10_000) == 10 * 1024 + memory.PATTERN_BYTES
        assert memory.case_bytes(large, 10_000) == 2 * (1 << 20) + memory.PATTERN_BYTES

    def test_the_plan_says_what_each_case_needs(self) -> None:
        plan = plan_of(ops=("all_gather", "barrier"), sizes=(64, 1 << 20))
        for entry in plan.cases:
            backends = [BACKENDS[arm.backend] for arm in plan.arms]
            assert entry.bytes_per_rank == memory.case_bytes(entry.case, plan.rotation_bytes, backends)

    def test_ranks_of_a_host_go_past_its_cache_together(self) -> None:
        host = Machine("host", "cpu", 4, memory_bytes=1 << 40, last_level_cache_bytes=40 << 20)
        assert host.rotation_bytes("cpu", 4) * 4 == pytest.approx(1.1 * (40 << 20), rel=1e-6)

    def test_rotation_leaves_small_machines_their_memory(self) -> None:
        host = Machine("host", "cpu", 2, memory_bytes=1 << 30, last_level_cache_bytes=512 << 20)
        assert host.rotation_bytes("cpu", 2) == (1 << 30) // 2 // 16

    def test_the_largest_cache_counts(self, tmp_path: Path) -> None:
        for index, size in enumerate(("32K", "1024K", "36864K", "gibberish")):
            (tmp_path / f"index{index}").mkdir()
            (tmp_path / f"index{index}" / "size").write_text(size + "\n")
        assert machine.last_level_cache_bytes(tmp_path) == 36 << 20
        assert machine.last_level_cache_bytes(tmp_path / "none") == machine.DEFAULT_CACHE_BYTES

    def test_available_memory_respects_the_container(self, tmp_path: Path) -> None:
        meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
        meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
        assert machine.available_bytes(meminfo, limit) == 2 << 20
        limit.write_text("max\n")
        assert machine.available_bytes(meminfo, limit) == 2 << 20
        limit.write_text(f"{1 << 20}\n")
        assert machine.available_bytes(meminfo, limit) == 1 << 20
        assert machine.available_bytes(tmp_path / "none", tmp_path / "none") is None

    def test_what_does_not_fit_is_skipped_and_the_rest_is_planned(self) -> None:
        plan = plan_of(sizes=(1024, 1 << 40))
        fits, large = plan.cases
        assert (fits.status, large.status) == ("planned", "skipped")
        assert re.search(r"does not fit into the .*iB of memory that each of 2 ranks", str(large.reason))
        assert large.bytes_per_rank == (2 << 40) + memory.PATTERN_BYTES
        assert plan.bytes_per_rank == fits.bytes_per_rank

    def test_where_nothing_fits_it_is_refused_before_anything_starts(self) -> None:
        with pytest.raises(RequestError, match=r"does not fit into .*; lower -e/--max-bytes"):
            plan_of(sizes=(1 << 40,))
        with pytest.raises(RequestError, match=r"does not fit into the 1\.0 TiB of a GPU \(1\); lower"):
            plan_of(sizes=(1 << 44,), device="cuda")


@pytest.mark.parametrize("narms", [2, 3, 4, 6])
def test_over_as_many_epochs_as_arms_each_arm_begins_once(narms: int) -> None:
    for case in ("a", "b"):
        for block in range(3):
            visits = usual_visits(narms)
            epochs = [block * narms + step for step in range(narms)]
            orders = [visit_order(narms, 7, epoch, case, visits) for epoch in epochs]
            assert sorted(order[0] for order in orders) == list(range(narms))
            assert all(order.count(arm) == visits for order in orders for arm in range(narms))


def test_two_arms_are_visited_as_a_pair_and_its_reverse() -> None:
    orders = {tuple(visit_order(2, seed, epoch, "x", 2)) for seed in range(8) for epoch in range(2)}
    assert orders == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_more_visits_are_more_such_pairs() -> None:
    (one, other) = (visit_order(2, 3, epoch, "x", 6) for epoch in (0, 1))
    assert one[:4] * 3 == one
    assert [1 - arm for arm in one] == other
