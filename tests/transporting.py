"""Weights moved by real processes: the command, pairs of endpoints, and a stand-in for the nixl package."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sweeping import Outcome, run

from ncclbench.supervise.slots import Slots
from ncclbench.worker.board import Board

COMMAND = (sys.executable, "-m", "ncclbench", "transport")
SMALL = ("--weights", "4M", "--epochs", "1", "-n", "2", "--nproc-per-node", "3")
TINY = ("--weights", "1M", "--epochs", "1", "-n", "1", "--generators", "1")

# What torch's NIXL transport calls of the package, over our own way into another process' memory. Its agents
# abort the process when the interpreter ends, as those of UCX do. FAKE_NIXL may say that they abort as well
# when they are closed after weights were moved ("close"), that they only say that they move any ("lies"), or
# that the first two transfers of weights come after they are said to be done ("late").
FAKE_NIXL = """
import atexit, ctypes, json, os, threading
from ncclbench.worker.vm_memory import Identity, Neighbour, Part, PERMISSION, identity, head, advance
from dataclasses import asdict

MODE = os.environ.get("FAKE_NIXL")
LARGE = 100_000
moved_large = []

class nixl_agent_config:
    def __init__(self, **settings):
        pass

class nixl_agent:
    def __init__(self, name, config):
        self.name, self.backends, self._peers = name, {"UCX": None}, {}
        atexit.register(os.abort)
    def _meta(self):
        return json.dumps({"name": self.name, **asdict(identity())}).encode()
    def get_agent_metadata(self):
        return self._meta()
    def get_partial_agent_metadata(self, descs, inc_conn_info, backends):
        return self._meta()
    def add_remote_agent(self, meta):
        who = json.loads(meta)
        name = who.pop("name")
        if name not in self._peers:
            self._peers[name] = Neighbour(Identity(**who))
            PERMISSION.allow(self._peers[name].who)
        return name
    def remove_remote_agent(self, name):
        if MODE == "close" and moved_large:
            os.abort()
        self._peers.pop(name).close()
    def register_memory(self, tensor, backends):
        return tensor
    def deregister_memory(self, descs, backends):
        pass
    def get_xfer_descs(self, ranges, mem_type):
        return ranges
    def initialize_xfer(self, operation, local, remote, name, backends):
        parts = [Part(one[0], two[0], one[1]) for one, two in zip(local, remote)]
        return [operation == "WRITE", parts, name]
    def transfer(self, handle):
        writes, parts, name = handle
        if max(part.nbytes for part in parts) > LARGE:
            if MODE == "lies":
                return "DONE"
            moved_large.append(name)
            if MODE == "late" and len(moved_large) <= 2:
                threading.Timer(0.02, self._move, [writes, parts, name]).start()
                return "DONE"
        self._move(writes, parts, name)
        return "DONE"
    def _move(self, writes, parts, name):
        first = offset = 0
        while first < len(parts):
            moved = self._peers[name].move(head(parts, first, offset, 1 << 24), writes=writes)
            first, offset = advance(parts, first, offset, moved)
    def check_xfer_state(self, handle):
        return "DONE"
    def release_xfer_handle(self, handle):
        pass
"""


def transport(*options: str | Path, env: Mapping[str, str] | None = None) -> Outcome:
    """``ncclbench transport`` to its end."""
    return run(*COMMAND, *options, env=env)


def with_fake_nixl(folder: Path, mode: str = "") -> dict[str, str]:
    """Variables with which a command finds the stand-in; ``mode``: "", "close", "lies" or "late"."""
    package = folder / "site" / "nixl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_NIXL)
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "FAKE_NIXL": mode}


def hiding(folder: Path, module: str) -> Path:
    """A folder for PYTHONPATH with which a module cannot be found, even where it is installed."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    return folder / "site"


@contextmanager
def beside_process(work: Callable[[Connection], Any]) -> Iterator[tuple[Connection, int]]:
    """A forked process that does some work, the pipe to it and its pid; it is gone afterwards."""
    with Slots() as slots:
        slots.start([0], Board(1), lambda number, pipe: work(pipe))
        (slot,) = slots.slots
        assert slot.pipe is not None
        yield slot.pipe, slot.pid
