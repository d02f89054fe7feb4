"""Process groups: what many of them cost in fresh processes, and collectives in several at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ncclbench.plan.model import Arm, Plan
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.group_costs import Costs
from ncclbench.worker.programs.groups_at_once import AtOnce


def run(bench: Bench, request: dict[str, Any]) -> None:
    """One stage after the other until no more is asked for.

    Args:
        request: ``arms``: id and backend of each; ``stages``: their names, in the order in which progress
            counts them; ``plan``: of the collectives in several groups; None where there are none.
    """
    names = list(request["stages"])
    arms = [Arm(*each) for each in request["arms"]]
    fence = bench.fence()
    stages: dict[str, Callable[[dict[str, Any]], Any]] = {"costs": Costs(bench, fence, arms).run}
    at_once = None
    if request["plan"] is not None:
        at_once = AtOnce(bench, fence, Plan.from_json(request["plan"]))
        stages |= {"opening": at_once.open, "together": at_once.run}
    while (order := bench.control.share(bench.link.ask(protocol.Ready()))) is not None:
        bench.place.enter(names.index(order["stage"]), 0, order.get("epoch", NOWHERE))
        bench.tell(order["stage"], stages[order["stage"]](order))
    if at_once is not None:
        at_once.close()
