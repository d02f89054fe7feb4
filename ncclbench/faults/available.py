"""Which strategies can be had: what this torch and its process groups say, asked in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from ncclbench.environ import variable
from ncclbench.errors import MeasurementError
from ncclbench.faults.shortening import shortened
from ncclbench.supervise.rendezvous import Rendezvous, meet_alone
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.slots import Exit, Slots
from ncclbench.tables.backends import find_backend
from ncclbench.tables.strategies import STRATEGIES, Strategy
from ncclbench.worker.board import Board

_ASK_S = 60.0


def why_unavailable(strategies: Sequence[str], backend: str, signals: EndSignals) -> dict[str, str]:
    """Reasons, by strategy, for those that cannot be had with this backend here.

    Raises:
        MeasurementError: the process that asks torch did not answer.
        Interrupted: an ending signal has come.
    """
    entries = [STRATEGIES[name] for name in strategies]
    wanted = {entry.needs for entry in entries if _fixed_reason(entry, backend) is None}
    refused = _ask(sorted({_question_of(need) for need in wanted}), backend, signals)
    reasons = {}
    for entry in entries:
        reason = _fixed_reason(entry, backend) or refused.get(_question_of(entry.needs))
        if reason is not None:
            reasons[entry.name] = reason
    return reasons


def _fixed_reason(strategy: Strategy, backend: str) -> str | None:
    """What needs no asking."""
    if strategy.backends and backend not in strategy.backends:
        return f"works on {' and '.join(strategy.backends)}, this is {backend}"
    if strategy.needs == "elastic" and importlib.util.find_spec("torch.distributed.run") is None:
        return "this torch has no torch.distributed.run"
    return None


def _question_of(need: str | None) -> str:
    """What is asked: where a strategy needs nothing else, whether there can be a group at all."""
    return need if need is not None and need in _ASKING else "group"


def _ask(needs: Sequence[str], backend: str, signals: EndSignals) -> dict[str, str]:
    """What a group refuses, by need, in torch's words."""
    refused: dict[str, str] = {}
    for need in needs:
        reason = _ask_one(_ASKING[need], backend, meet_alone(), signals)
        if reason is not None:
            refused[need] = reason
    return refused


def _ask_one(question: _Question, backend: str, meeting: Rendezvous, signals: EndSignals) -> str | None:
    """What rank 0 of a group as small as the question allows says."""

    def work(rank: int, pipe: Connection) -> None:
        pipe.send((_answer(question, backend, rank, meeting),))
        # A group of some backends aborts its process at its end; a second rank stays until it is ended.
        if rank == 0:
            os._exit(0)
        time.sleep(_ASK_S)

    with Slots() as slots:
        slots.start(range(question.nranks), Board(question.nranks), work)
        deadline = time.monotonic() + _ASK_S
        while time.monotonic() < deadline:
            for happening in slots.happenings(0.5, signals.wakeup):
                if isinstance(happening.message, Exit):
                    said = happening.slot.last_words()
                    raise MeasurementError(f"a {backend} group that was asked {happening.message}: {said}")
                if happening.slot.rank == 0:
                    (reason,) = happening.message
                    return None if reason is None else str(reason)
            signals.check()
    raise MeasurementError(f"a {backend} group that was asked did not answer within {_ASK_S:.0f} s")


def _answer(question: _Question, backend: str, rank: int, meeting: Rendezvous) -> str | None:
    """In a process of its own, since a group cannot be asked before it is made."""
    import torch.distributed as dist

    from ncclbench.worker.compat import backend_name
    from ncclbench.worker.devices import Devices
    from ncclbench.worker.groups import device_kind, prepare_environment
    from ncclbench.worker.probe import first_line

    lacking = question.lacking(dist)
    if lacking is not None:
        return lacking
    prepare_environment(True, False, 1)
    entry = find_backend(backend)
    try:
        Devices(rank).get(device_kind(entry))
        dist.init_process_group(
            backend_name(entry),
            rank=rank,
            world_size=question.nranks,
            store=meeting.worker_store(0),
            timeout=timedelta(seconds=_ASK_S),
            **question.options,
        )
        return question.ask(dist) if rank == 0 else None
    except Exception as error:  # whatever a backend raises is the reason
        return f"torch says: {shortened(first_line(error))}"


@dataclass(frozen=True, slots=True)
class _Question:
    """How a need is asked for.

    Attributes:
        nranks: of the group that is asked.
        options: of its init_process_group.
        lacking: why this torch has nothing of the kind, told of torch.distributed; None where it has.
        ask: of rank 0, in the group: why it refuses, unless it raises; None where it does not.
    """

    nranks: int
    options: Mapping[str, Any]
    lacking: Callable[[Any], str | None]
    ask: Callable[[Any], str | None]


def _no_reconfigure(dist: Any) -> str | None:
    if not hasattr(dist, "_supports_reconfigure"):
        return "this torch has no reconfigure, which is new in 2.15"
    if (variable("TORCH_DISTRIBUTED_DEBUG") or "").upper() == "DETAIL":
        return "TORCH_DISTRIBUTED_DEBUG=DETAIL turns reconfigure off: unset it"
    return None


def _refuses_reconfigure(dist: Any) -> str | None:
    return None if dist._supports_reconfigure() else "torch says that this group does not support it"


def _no_shrink(dist: Any) -> str | None:
    return None if hasattr(dist, "shrink_group") else "this torch has no shrink_group"


def _refuses_shrink(dist: Any) -> str | None:
    dist.shrink_group([1])
    return None


_ASKING = {
    "group": _Question(1, {}, lambda dist: None, lambda dist: None),
    "reconfigure": _Question(1, {"enable_reconfigure": True}, _no_reconfigure, _refuses_reconfigure),
    # A group of one cannot shrink, whatever its backend.
    "shrink": _Question(2, {}, _no_shrink, _refuses_shrink),
}
