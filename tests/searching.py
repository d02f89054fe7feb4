"""Searches as real commands on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sweeping import Outcome, Running, beside, lines, run, wait_until

from ncclbench.attribution.stages import Size

NRANKS = 3


def search(command: str, *options: str | Path) -> Outcome:
    """``matrix`` or ``suspects`` to its end."""
    return run(sys.executable, "-m", "ncclbench", command, *options)


@contextmanager
def long_search(command: str, folder: Path) -> Iterator[Running]:
    """A search that goes on until it is hurt; tests of ranks, where it makes any, and pairs are on disk."""
    words = (sys.executable, "-m", "ncclbench", command, "--nproc-per-node", str(NRANKS))
    with Running(*words, "--passes", "1000", "--timeout", "4s", "--out", folder) as running:
        running.workers(NRANKS)
        wait_until(lambda: lines(folder) > Size().computes * NRANKS, "the first pass")
        yield running


def acting_at(count: int, folder: Path, act: Callable[[], None]) -> AbstractContextManager[None]:
    """Act when so many lines of the run in ``folder`` are written."""

    def watch(done: threading.Event) -> None:
        while not done.wait(0.05):
            if lines(folder) >= count:
                act()
                return

    return beside(watch)


def lines_of_passes(passes: int, hosts: int) -> int:
    """How many lines so many passes of `suspects` with one rank on each host write."""
    return passes * (hosts * (hosts - 1) + Size().computes * hosts)


def under_launcher(nranks: int, *words: str | Path, folders: Sequence[Path] = ()) -> list[Outcome]:
    """A supervisor for each rank, started by hand as any launcher would; outcomes by rank.

    Args:
        folders: where each is started; here where none are given.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sizes = {"WORLD_SIZE": str(nranks), "LOCAL_WORLD_SIZE": str(nranks)}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "ncclbench", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **sizes, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folders[rank] if folders else None,
        )
        for rank in range(nranks)
    ]
    try:
        texts = [process.communicate(timeout=100) for process in started]
    finally:
        for process in started:
            process.kill()
    return [Outcome(process.returncode, *said) for process, said in zip(started, texts, strict=True)]
