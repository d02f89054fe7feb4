"""Running the real command in processes of its own, and looking at what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

SWEEP = (sys.executable, "-m", "ncclbench", "sweep")
_RUN_S = 100.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: exit code, standard output and error."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a command to its end."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        cwd=cwd,
        env=None if env is None else {**os.environ, **env},
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def sweep(*options: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Outcome:
    """``ncclbench sweep`` to its end."""
    return run(*SWEEP, *options, cwd=cwd, env=env)


def _serves(process: psutil.Process) -> bool:
    try:
        return process.name() == "ncclbench-store"
    except psutil.NoSuchProcess:
        return False


class Running:
    """A command that is still going: its process tree can be found, hurt and waited for."""

    def __init__(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._seen: set[psutil.Process] = set()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.descendants()
        for process in [*self._seen, psutil.Process()]:
            if process.pid != os.getpid() and alive(process):
                process.kill()
        self._process.kill()
        self._process.communicate(timeout=_RUN_S)

    @property
    def pid(self) -> int:
        """Of the command itself."""
        return self._process.pid

    def descendants(self) -> list[psutil.Process]:
        """Processes below the command, oldest first, but for the one that serves the store."""
        try:
            found = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._seen.update(found)
        return sorted((one for one in found if not _serves(one)), key=lambda process: process.create_time())

    def workers(self, count: int) -> list[psutil.Process]:
        """The ``count`` workers of a plain sweep in order of rank, once they are there."""
        wait_until(lambda: len(self.descendants()) >= count, "the workers")
        return self.descendants()[:count]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command."""
        self._process.send_signal(number)

    def wait(self) -> Outcome:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=_RUN_S)
        return Outcome(self._process.returncode, out, err)

    def left_behind(self, within_s: float) -> list[int]:
        """Processes ever seen below the command that are still alive after a while."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and any(alive(process) for process in self._seen):
            time.sleep(0.05)
        return [process.pid for process in self._seen if alive(process)]


def alive(process: psutil.Process) -> bool:
    """Whether it still runs: a zombie that nobody has reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {within_s:.0f} s"
        time.sleep(0.05)


def lines(folder: Path) -> int:
    """Whole lines of samples that are on disk."""
    path = folder / "samples.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def by_status(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many rows have each status."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    return counts


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do something in a thread of its own, until it is told to stop: the event is set at the end."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), name="beside")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_RUN_S)
        assert not thread.is_alive(), f"what was done beside did not end within {_RUN_S:.0f} s"
