"""Point-to-point on its own: tables with something behind every name, rows, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from p2p_fixtures import (
    make_cell,
    make_check,
    make_first,
    make_p2p,
    make_peers,
    make_way,
)

from ncclbench.cells.ordering import Hand, bisect
from ncclbench.cells.semantics import CHECKS
from ncclbench.plan.model import Arm
from ncclbench.stats.p2p import first_rows, ordering_rows, p2p_of, peer_rows, way_rows
from ncclbench.store.p2p import ArmFound
from ncclbench.supervise.p2p import P2pOrders, P2pPlan
from ncclbench.tables.orderings import ORDERINGS, STEPS
from ncclbench.tables.p2p import IN_CELLS, PARTS
from ncclbench.tables.semantics import SEMANTICS
from ncclbench.tables.ways import WAYS
from ncclbench.terminal.p2p import p2p_lines, sentences


class TestTables:
    def test_names_are_their_keys(self) -> None:
        for table in (WAYS, ORDERINGS, SEMANTICS):
            assert all(name == entry.name for name, entry in table.items())  # type: ignore[attr-defined]

    def test_every_step_of_an_order_can_be_made(self) -> None:
        used = {step for entry in ORDERINGS.values() for steps in entry.steps for step in steps}
        assert used == set(STEPS)
        assert all(callable(getattr(Hand, step)) for step in STEPS)

    def test_every_question_has_a_check(self) -> None:
        assert set(SEMANTICS) == set(CHECKS)

    def test_a_question_that_some_devices_lack_says_why(self) -> None:
        for entry in SEMANTICS.values():
            assert (entry.elsewhere is None) == (set(entry.devices) == {"cpu", "cuda"}), entry.name

    def test_what_torch_is_silent_of_is_not_called_documented(self) -> None:
        for entry in SEMANTICS.values():
            assert entry.silent == entry.documented.startswith("torch is silent"), entry.name
        lines = p2p_lines(
            p2p_of([make_check("memory-scatter", "as-documented"), make_check("call-time", "as-documented")])
        )
        assert "  memory-scatter: as one would think" in lines
        assert "  call-time: as documented" in lines

    def test_cells_are_of_parts_that_there_are(self) -> None:
        assert set(IN_CELLS) < set(PARTS)


class TestBisecting:
    @pytest.mark.parametrize("limit", range(1, 14))
    def test_smallest_that_hangs_is_found_in_few_tries(self, limit: int) -> None:
        sizes = list(range(1, 13))
        tried: list[int] = []

        def completes(nbytes: int) -> bool:
            tried.append(nbytes)
            return nbytes < limit

        assert bisect(sizes, completes) == (limit if limit <= 12 else None)
        assert len(tried) <= 2 + 4
        assert len(set(tried)) == len(tried)

    def test_one_size_is_tried_once(self) -> None:
        tried: list[int] = []
        assert bisect([8], lambda nbytes: bool(tried.append(nbytes)) or True) is None
        assert tried == [8]


class TestRows:
    def test_medians_are_over_epochs_and_the_interval_is_students(self) -> None:
        lines = [make_way(epoch=epoch, there_us=[time]) for epoch, time in enumerate((40.0, 50.0, 62.5))]
        (row,) = way_rows([_one(line) for line in lines])
        assert (row["epochs"], row["n"], row["latency_us"]) == (3, 3, 50.0)
        # Logarithms are 0.2231 apart: their standard error is 0.2231/sqrt(3), t(0.975; 2) = 4.3027.
        assert row["ci_low_us"] == pytest.approx(50 / 1.7406, rel=1e-3)
        assert row["ci_high_us"] == pytest.approx(50 * 1.7406, rel=1e-3)
        assert row["bandwidth_GBs"] == pytest.approx(4096 / 50 / 1e3)

    def test_a_round_trip_is_halved_and_a_window_counts_its_messages(self) -> None:
        ping, window = way_rows([make_way("ping-pong"), make_way("window")])
        assert (ping["latency_us"], ping["total_us"]) == (26.0, 41.0)
        assert ping["bandwidth_GBs"] == pytest.approx(4096 / 26 / 1e3)
        assert window["bandwidth_GBs"] == pytest.approx(16 * 4096 / 52 / 1e3)

    def test_two_epochs_have_no_interval(self) -> None:
        (row,) = way_rows([make_way(epoch=0), make_way(epoch=1)])
        assert (row["ci_low_us"], row["ci_high_us"]) == (None, None)

    def test_directions_arms_and_sizes_are_rows_of_their_own(self) -> None:
        lines = [make_way(), make_way(both=True), make_way(arm="gloo#2"), make_way(nbytes=8)]
        assert len(way_rows(lines)) == 4

    def test_first_against_later(self) -> None:
        near, far = first_rows(
            [make_first(2, first_us=60.0), make_first(1), make_first(1, 1, first_us=700.0)]
        )
        assert (near["dst"], near["first_us"], near["first_worst_us"], near["epochs"]) == (1, 800.0, 900.0, 2)
        assert near["cold_us"] == 3800.0
        assert (far["dst"], far["ratio"]) == (2, 2.0)

    def test_all_at_once_against_one_after_the_other(self) -> None:
        beside = make_peers(beside="all_reduce", beside_us=[120.0, 120.0], total_us=[160.0, 160.0])
        plain, mixed = peer_rows([beside, make_peers()])
        assert (plain["ratio"], plain["ratio_at_best"]) == (0.75, 0.5)
        assert (mixed["ratio"], mixed["ratio_at_best"]) == (1.0, 0.75)

    def test_size_from_which_an_order_does_not_end(self) -> None:
        cells = [
            make_cell("isend-recv", 1 << 20, "deadlocked"),
            make_cell("isend-recv", 8, "completed"),
            make_cell("isend-recv", 4096, "completed"),
            make_cell("send-send", 8),
            make_cell("batched", 8, "completed"),
        ]
        some, always, never = ordering_rows(cells)
        assert (some["from_nbytes"], some["completed_to_nbytes"]) == (1 << 20, 4096)
        assert (always["from_nbytes"], always["completed_to_nbytes"], always["safe"]) == (8, None, False)
        assert (never["outcome"], never["from_nbytes"], never["safe"]) == ("completed", None, True)

    def test_wrong_data_and_leftovers_of_all_parts_are_summed(self) -> None:
        found = p2p_of(
            [
                make_way(wrong=2),
                make_peers(wrong=1),
                make_cell(wrong=1, leftover_processes=1),
                make_check(leftover_processes=2),
            ]
        )
        assert (found.wrong, found.leftover_processes) == (4, 3)
        assert sentences(found)[:2] == ["WRONG DATA in 4 messages", "3 processes left behind"]

    def test_document_is_plain_data(self) -> None:
        json.dumps(p2p_of(make_p2p().results).to_json(), allow_nan=False)


def _one(line: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(
        line, host_us=line.host_us[:1], total_us=line.total_us[:1], free_us=line.free_us[:1]
    )


class TestTerminal:
    def test_tables_and_sentences(self) -> None:
        found = p2p_of(make_p2p().results)
        lines = p2p_lines(found)
        assert lines[0] == "# gloo: ProcessGroupGloo (gloo)"
        assert any(line.startswith("  isend, both ") for line in lines)
        at = lines.index("  send-send   deadlocked from 8 bytes on, the smallest tried")
        assert lines[at + 1].strip() == "rank 0 in send, rank 1 in send"
        assert "  batched     completed up to 1M" in lines
        assert "  isend-recv  raised from 1M on, completed up to 4K" in lines
        assert "  is-completed: OTHERWISE" in lines
        assert "# left out: semantics on nccl2: its cells take 2 GPUs" in lines
        said = "; ".join(sentences(found))
        assert "deadlocked: send-send" in said
        assert "torch does otherwise than documented or thought in 1 of 2 questions: is-completed" in said

    def test_words_of_others_stay_on_their_line(self) -> None:
        found = p2p_of(
            [
                ArmFound(arm="x\ny", implementation=None, device=None, reason="no\n\x1b[31m"),
                make_cell(said={"0": "in\nsend\x1b[31m"}),
                make_check(said="a\nb"),
                make_way(arm="x\ny"),
            ]
        )
        assert all("\n" not in line and "\x1b" not in line for line in p2p_lines(found))

    def test_lines_fit_80_columns(self) -> None:
        for line in p2p_lines(p2p_of(make_p2p().results)):
            assert len(line) <= 80, line

    def test_latency_is_quoted_from_the_smallest_message_that_comes_back(self) -> None:
        lines = [
            make_way("send", nbytes=8, there_us=[1.0, 1.0]),
            make_way("ping-pong", nbytes=4096, there_us=[9.0, 9.0]),
            make_way("ping-pong", nbytes=1, there_us=[20.0, 20.0]),
        ]
        (said,) = sentences(p2p_of(lines))
        assert said.startswith("gloo: latency 10.00 us (half of ping-pong of 1 byte), most bandwidth")
        (said,) = sentences(p2p_of(lines[:1]))
        assert said.startswith("gloo: latency 1.00 us (send of 8 bytes)")

    def test_outcomes_of_an_order_are_told_arm_by_arm(self) -> None:
        cells = [make_cell(arm="gloo"), make_cell(outcome="completed", arm="ucc")]
        assert sentences(p2p_of(cells)) == ["deadlocked on gloo: send-send; completed on ucc: send-send"]

    def test_an_order_that_ends_with_wrong_data_says_so(self) -> None:
        lines = p2p_lines(p2p_of([make_cell("batched", 8, "completed", wrong=1)]))
        assert lines[-1] == "  batched  completed up to 8 bytes, WRONG DATA"

    def test_what_is_unanswered_counts_as_no_answer(self) -> None:
        checks = [make_check("call-time", "as-documented"), make_check("wait", "unanswered")]
        (said,) = sentences(p2p_of(checks))
        assert said == "torch does as documented or thought in 1 of 1 questions; unanswered: wait"

    def test_nothing(self) -> None:
        assert sentences(p2p_of([])) == ["nothing was measured"]


class TestOrders:
    def plan(self, **changes: Any) -> P2pPlan:
        settings: dict[str, Any] = {
            "parts": ("ways", "first", "peers"),
            "arms": (Arm("gloo", "gloo"), Arm("gloo#2", "gloo")),
            "nranks": 4,
            "sizes": (8, 64),
            "ways": tuple(WAYS),
            "orders": (),
            "peers": (1, 2, 3),
            "iters": 12,
            "warmup": 1,
            "check": 1,
            "epochs": 4,
            "deadline_s": 1.0,
            "timeout_s": 5.0,
            "seed": 0,
            "share_gpu": False,
        }
        return P2pPlan(**(settings | changes))

    def stages(self, plan: P2pPlan) -> list[dict[str, Any]]:
        """The orders, as though every arm could be had and every time were 1."""
        import numpy as np

        def answer(order: dict[str, Any]) -> Any:
            match order["stage"]:
                case "opening":
                    return {index: ["it", "cpu", None] for index in order["arms"]}
                case "ways":
                    visits = order["visits"]
                    return np.ones((2, len(visits), order["iterations"], 2)), [0] * len(visits)
                case "peers":
                    return np.ones((3, order["iterations"])), 0
            return 1.0, np.ones((len(order["peers"]), 1 + order["later"]))

        seen: list[dict[str, Any]] = []
        orders = P2pOrders(plan, lambda lines: None, lambda words: None).orders()
        found = None
        while True:
            try:
                seen.append(orders.send(found))
            except StopIteration:
                return seen
            found = answer(seen[-1])

    def test_every_combination_is_visited_as_often_and_the_order_changes(self) -> None:
        ways = [order for order in self.stages(self.plan()) if order["stage"] == "ways"]
        assert len(ways) == 4 * 2
        firsts = set()
        for order in ways:
            visits = order["visits"]
            assert all(visits.count(each) == 2 for each in self.plan().combinations)
            firsts.add(visits[0])
        assert len(firsts) > 1

    def test_every_epoch_has_fresh_groups_and_every_peer_is_first_in_turn(self) -> None:
        stages = self.stages(self.plan())
        assert sum(order["stage"] == "opening" for order in stages) == 4
        firsts = [order for order in stages if order["stage"] == "first"]
        assert len(firsts) == 4 * 2
        assert {order["peers"][0] for order in firsts} == {1, 2, 3}

    def test_peers_double_up_to_all_of_them_with_a_collective_and_without(self) -> None:
        cases = {
            (len(order["peers"]), order["beside"])
            for order in self.stages(self.plan())
            if order["stage"] == "peers"
        }
        assert cases == {(1, True), (2, False), (2, True), (3, False), (3, True)}

    def test_parts_in_cells_ask_nothing_of_the_workers(self) -> None:
        assert self.stages(self.plan(parts=("ordering", "semantics"))) == []
