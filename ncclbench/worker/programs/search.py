"""The search for who is slow: stages that rank 0's supervisor asks for one by one, as it learns from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ncclbench.plan.model import Arm
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE
from ncclbench.worker.programs.arrivals import Arrivals
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.compute import Compute
from ncclbench.worker.programs.pairs import Pairs
from ncclbench.worker.programs.subsets import Subsets


def run(bench: Bench, request: dict[str, Any]) -> None:
    """Open the arm's group, then one stage after the other until no more is asked for.

    Args:
        request: ``arm``: the arm's id and backend; ``stages``: "opening" and the names of the stages, in
            the order in which progress counts them; ``seed``; ``slowed``: slowdowns put in on purpose, see
            ``Compute``.
    """
    arm = Arm(*request["arm"])
    names = list(request["stages"])
    bench.place.enter(names.index("opening"), 0, NOWHERE)
    group = bench.open(arm)
    if group is None:
        return
    device = bench.device(arm)
    compute = Compute(bench, device, request)
    stages: dict[str, Callable[[dict[str, Any]], Any]] = {
        "compute": compute.run,
        "pairs": Pairs(bench, device, group.group, request["seed"]).run,
        "arrivals": Arrivals(bench, device, group.group, compute).run,
        "subsets": Subsets(bench, device, arm).run,
    }
    while (order := bench.control.share(bench.link.ask(protocol.Ready()))) is not None:
        bench.place.enter(names.index(order["stage"]), 0, order.get("turn", NOWHERE))
        found = stages[order["stage"]](order)
        bench.tell(order["stage"], found)
