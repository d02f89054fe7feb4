"""Point-to-point between ranks: groups made afresh for each epoch, and the parts that run on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ncclbench.plan.model import Arm
from ncclbench.worker import protocol
from ncclbench.worker.board import NOWHERE
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.p2p_first import First
from ncclbench.worker.programs.p2p_groups import Groups
from ncclbench.worker.programs.p2p_peers import Peers
from ncclbench.worker.programs.p2p_ways import Ways


def run(bench: Bench, request: dict[str, Any]) -> None:
    """One stage after the other until no more is asked for.

    Args:
        request: ``arms``: id and backend of each; ``stages``: their names, in the order in which progress
            counts them; ``seed``.
    """
    names = list(request["stages"])
    bench.place.enter(names.index("opening"), 0, NOWHERE)
    groups = Groups(bench, [Arm(*each) for each in request["arms"]])
    fence = bench.fence()
    stages: dict[str, Callable[[dict[str, Any]], Any]] = {
        "opening": groups.run,
        "first": First(bench, fence, groups).run,
        "ways": Ways(bench, fence, groups, request["seed"]).run,
        "peers": Peers(bench, fence, groups, request["seed"]).run,
    }
    while (order := bench.control.share(bench.link.ask(protocol.Ready()))) is not None:
        bench.place.enter(names.index(order["stage"]), 0, order["epoch"])
        bench.tell(order["stage"], stages[order["stage"]](order))
    groups.close()
