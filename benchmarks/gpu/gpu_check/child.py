"""One check in processes of its own: a deadline, what they printed, and nothing left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from ncclbench.supervise.orphans import die_with

# Set for every process of a check; one that left its parent and its session is known by it.
_MARK = "NCCLBENCH_GPU_CHECK"
# A process that has ended its work, or was killed, is not gone at once.
_SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit code, negative for a signal; None where the deadline came first.
        out, err: what it printed.
        seconds: how long it ran.
        left: processes that it left behind, which were ended.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    left: int


def run(
    command: Sequence[str], folder: Path, timeout_s: float, variables: Mapping[str, str] | None = None
) -> Ended:
    """Run a command to its end, or kill it with all that it has started.

    Args:
        folder: where its output is kept meanwhile; a pipe would stay open with whatever is left behind.
        variables: set besides what this process has.
    """
    mark = uuid.uuid4().hex
    began = time.monotonic()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            # Killed itself, the checker ends nothing any more.
            preexec_fn=partial(die_with, os.getpid()),
            env={**os.environ, **(variables or {}), _MARK: mark},
        )
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout_s)
            seconds = time.monotonic() - began
            left = _settled(mark) if code is not None else 0
        finally:
            _end(process, mark)
    printed, said = ((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    return Ended(code, printed, said, seconds, left)


def _settled(mark: str) -> int:
    """How many marked processes outlive the command."""
    deadline = time.monotonic() + _SETTLE_S
    while (left := sum(1 for _ in _marked(mark))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        found = list(_marked(mark))
        for each in found:
            with contextlib.suppress(psutil.Error):
                each.send_signal(signal.SIGKILL)
        if not found and process.poll() is not None:
            return
        time.sleep(0.05)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # somebody else's, or gone
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process
