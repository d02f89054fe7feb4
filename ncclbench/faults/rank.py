"""One rank of a drill: it does what the orchestrator orders, and fails where it is the victim."""

from __future__ import annotations

import contextlib
import os
import re
import time
from multiprocessing.connection import Connection
from typing import NoReturn

import torch
import torch.distributed as dist

from ncclbench.environ import set_variables
from ncclbench.faults.loop import Loop, Told
from ncclbench.faults.membership import Membership, membership_of
from ncclbench.faults.model import ERROR_HANDLING, MARKER
from ncclbench.faults.stamps import Seat
from ncclbench.faults.talk import (
    Answer,
    Burst,
    End,
    Form,
    Formed,
    Left,
    Measured,
    Prepare,
    Raised,
    RankTask,
    Ready,
    Step,
    Stopped,
)
from ncclbench.tables.backends import find_backend
from ncclbench.tables.faults import FAULTS, InjectedFault, Stroke
from ncclbench.tables.strategies import STRATEGIES
from ncclbench.worker import recorder
from ncclbench.worker.devices import Devices
from ncclbench.worker.groups import device_kind, prepare_environment
from ncclbench.worker.probe import first_line

_CONNECT_S = 30.0
# What the first element of a stage's marks is called.
_FORMED = {"n_minus_1": "detach", "n": "rejoin"}
_GOOD = {"n_minus_1": "first_good_n_minus_1", "n": "first_good_n"}


def _settle_environment(task: RankTask) -> None:
    """What libraries read once, before any group exists."""
    set_variables({MARKER: task.token, ERROR_HANDLING: task.error_handling})
    set_variables(dict(STRATEGIES[task.strategy].environment))
    prepare_environment(True, task.share_gpu, task.nranks)


def run_rank(task: RankTask, pipe: Connection, seat: Seat) -> NoReturn:
    """Follow orders until there is none; ends the process at once, whatever groups still hold.

    Args:
        pipe: to the orchestrator.
        seat: this rank's stamps.
    """
    code = 1
    try:
        _settle_environment(task)
        _Rank(task, pipe, seat).follow()
        code = 0
    except InjectedFault as error:
        _tell(pipe, Raised(first_line(error), True))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the orchestrator has gone; the kernel ends this process, too
    except Exception as error:
        _tell(pipe, Raised(f"{type(error).__name__}: {first_line(error)}", False))
    finally:
        # Ending groups could wait for operations that nobody will complete.
        os._exit(code)


def _tell(pipe: Connection, answer: Answer) -> None:
    with contextlib.suppress(OSError):
        pipe.send(answer)


class _Rank:
    def __init__(self, task: RankTask, pipe: Connection, seat: Seat) -> None:
        torch.set_num_threads(1)
        self._task = task
        self._pipe = pipe
        self._seat = seat
        devices = Devices(task.rank)
        device = devices.get(device_kind(find_backend(task.backend)))
        store = _store(task)
        self._membership: Membership = membership_of(STRATEGIES[task.strategy])(task, store, device)
        blocking = not STRATEGIES[task.strategy].detaches
        self._loop = Loop(task.rank, task.nbytes, device, pipe, seat, blocking)
        self._is_victim = task.rank == task.victim and not task.is_replacement

    def follow(self) -> None:
        """Do what is ordered, one order after the other."""
        if not self._task.is_replacement:
            self._get_ready()
        while True:
            order = self._pipe.recv()
            match order:
                case Prepare():
                    self._get_ready()
                case Form():
                    self._pipe.send(self._form(order))
                case Burst():
                    self._pipe.send(Measured(self._loop.burst()))
                case Step():
                    self._pipe.send(self._step(order))
                case End():
                    return

    def _get_ready(self) -> None:
        handle = self._membership.begin()
        self._seat.mark("ready")
        self._seat.beat()
        self._pipe.send(Ready(handle))

    def _form(self, order: Form) -> Formed:
        self._membership.form(order)
        if order.stage in _FORMED:
            self._seat.mark(_FORMED[order.stage])
        self._loop.enter(order)
        correct, _ = self._loop.checked()
        if order.stage in _GOOD and correct:
            self._seat.mark(_GOOD[order.stage])
        return Formed(correct)

    def _step(self, order: Step) -> Stopped:
        """Step until something says to stop."""
        done = 0
        began = time.monotonic()
        try:
            while order.count is None or done < order.count:
                self._loop.listen()
                self._compute(done if order.count is None else None)
                _, pauses = self._loop.checked()
                done += 1
                if pauses:
                    return self._stopped("paused", "")
        except Told as told:
            return self._stopped("told", str(told))
        except RuntimeError as error:
            if isinstance(error, InjectedFault):
                raise
            return self._stopped("raised", _torch_words(error))
        return Stopped("counted", "", "", time.monotonic() - began)

    def _stopped(self, why: Left, text: str) -> Stopped:
        self._seat.mark("notice")
        # Before anything else: what is given up looks like what is done.
        dumps = tuple(recorder.dumps(self._task.rank)) if self._task.records and why != "paused" else ()
        return Stopped(why, text, self._membership.handle(), dumps=dumps)

    def _compute(self, step: int | None) -> None:
        """What a step does besides its operation; here a fault falls that the victim brings on itself.

        Args:
            step: from 0; None where no fault may come.
        """
        task, fault = self._task, FAULTS[self._task.fault]
        if self._is_victim and fault.cause == "victim" and step is not None and step >= task.step:
            self._seat.mark("fault")
            fault.harm(Stroke(os.getpid(), task.rank, step, task.compute_s, task.slow_factor))
        time.sleep(task.compute_s)
        self._seat.beat()


def _torch_words(error: RuntimeError) -> str:
    """What torch says, without its source position, its advice and what is another each time."""
    words = re.sub(r"^\[[^\]]*\]\s*", "", first_line(error)).partition(". ")[0]
    # Which of the two it waits in depends on how far the ring has come.
    words = re.sub(r"for (?:send|recv) operation", "for a send or recv", words)
    return re.sub(r"(\[[\d.:a-f]+\]):\d+", r"\1", words)


def _store(task: RankTask) -> object:
    from datetime import timedelta

    host, port = task.store
    client = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_CONNECT_S))  # type: ignore[attr-defined]
    return dist.PrefixStore(task.prefix, client)  # type: ignore[attr-defined]
