"""A worker in another environment: the process that was forked for it becomes another Python."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import ncclbench
from ncclbench.environ import variables as own_variables
from ncclbench.plan.environments import ArmEnvironment
from ncclbench.supervise.orphans import guard_group
from ncclbench.worker.board import Board
from ncclbench.worker.elsewhere import Entry
from ncclbench.worker.meeting import StorePlace
from ncclbench.worker.protocol import WorkerTask
from ncclbench.worker.stacks import STACK_SIGNAL

# This very ncclbench, whatever is installed there: what its workers say must be what we understand. By its
# folder alone, so that no other package comes with it.
_BEGIN = """
import importlib.util, sys
folder, descriptor = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "ncclbench", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["ncclbench"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from ncclbench.worker.elsewhere import begin
begin(int(descriptor))
"""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What a worker is given on its way; all of it exists in the forked process already."""

    task: WorkerTask
    store: StorePlace
    pipe: Connection
    board: Board
    slot: int
    has_gate: bool
    recorders: socket.socket | None


def start_elsewhere(environment: ArmEnvironment, given: Elsewhere) -> NoReturn:
    """In the forked process: become a worker in that environment. Progress, pipe and log stay as they are.

    Where the interpreter cannot be executed the log says why, and the process ends.
    """
    recorders = -1 if given.recorders is None else given.recorders.fileno()
    entry = Entry(
        task=given.task,
        store=given.store,
        slot=given.slot,
        slots=given.board.slots,
        has_gate=given.has_gate,
        pipe=given.pipe.fileno(),
        board=given.board.fileno(),
        recorders=recorders,
    )
    memory = os.memfd_create("ncclbench-task", 0)
    with os.fdopen(memory, "wb", closefd=False) as file:
        pickle.dump(entry, file)
    os.lseek(memory, 0, os.SEEK_SET)
    for descriptor in (entry.pipe, entry.board, entry.recorders):
        if descriptor >= 0:
            os.set_inheritable(descriptor, True)
    folder = str(Path(ncclbench.__file__).resolve().parent)
    # -P: the current folder is no place for modules.
    words = [environment.python, "-P", "-c", _BEGIN, folder, str(memory)]
    guard_group()
    # Until it answers with stacks itself; otherwise being asked for one would kill it, or its script.
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    become(words, environment.variables)


def become(words: list[str], more: Mapping[str, str]) -> NoReturn:
    """In a forked process: be another program, with this one's environment variables and ``more``.

    Where it cannot be executed standard error says why, and the process ends with 126.
    """
    try:
        os.execve(words[0], words, {**own_variables(), **more})  # noqa: S606  ours, or what --arm-env names
    except OSError as error:
        mend = " (a script begins with #! and its interpreter)" if error.errno == errno.ENOEXEC else ""
        os.write(2, f"{words[0]} cannot be executed: {error.strerror}{mend}\n".encode())
        os._exit(126)
