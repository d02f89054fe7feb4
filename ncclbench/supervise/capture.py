"""Flight recorders at the moment of a hang or a failure: asked of every rank that answers, kept, judged."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from ncclbench.worker.recorder import LEGACY, RECORDED, holds_entries, post, stamped
from ncclbench.writing import write_whole

if TYPE_CHECKING:
    from ncclbench.flight.model import Judgement

FLIGHT_FOLDER = "flight"

# A stopped process never answers; one that hangs does within milliseconds.
_ANSWER_S = 1.0
_ASKED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class RankDump:
    """What one recorder of one rank held, as torch writes it, with whose it is and when it was taken."""

    rank: int
    backend: str
    content: bytes

    @property
    def file_name(self) -> str:
        """Under which it is kept."""
        return f"rank{self.rank}-{self.backend}.json"


class Recorders:
    """The way to the flight recorders of the workers that one process forks. Use as a context.

    Make it before the fork and give ``line`` to ``worker.recorder.answering`` in every worker.
    """

    def __init__(self, backends: Iterable[str] = ()) -> None:
        """``backends``: torch's names of those in use, besides the usual ones."""
        self._ours, self.line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._opened: dict[int, int] = {}
        self._backends = tuple(dict.fromkeys([*RECORDED, *(name for name in backends if name != LEGACY)]))

    def __enter__(self) -> Recorders:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.settle()
        for opened in self._opened.values():
            os.close(opened)
        self._ours.close()
        self.line.close()

    def ask(self, ranks: Collection[int]) -> list[RankDump]:
        """The dumps of those of the ranks that answer within a second, all asked at the same time."""
        self.settle()
        asked = [rank for rank in ranks if rank in self._opened]
        if not asked:
            return []
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(asked))) as pool:
            return [dump for found in pool.map(self._ask, asked) for dump in found]

    def settle(self) -> None:
        """Take what workers have sent, so that none finds the line full; call it now and then."""
        while True:
            try:
                told, opened, _, _ = socket.recv_fds(self._ours, 64, 1)
            except OSError:
                return
            rank = int(told)
            if rank in self._opened:  # a worker that took another's place
                os.close(self._opened[rank])
            self._opened[rank] = opened[0]

    def _ask(self, rank: int) -> list[RankDump]:
        found: dict[str, bytes] = {}
        deadline = time.monotonic() + _ANSWER_S
        paths = {name: f"/handler/fr_trace_json?backend={name}" for name in self._backends}
        for backend, path in {**paths, LEGACY: "/handler/dump_nccl_trace_json"}.items():
            content = None
            with contextlib.suppress(OSError, HTTPException):
                content = post(self._opened[rank], path, deadline - time.monotonic())
            if time.monotonic() >= deadline:
                break
            # Before torch 2.15 one recorder answers to every name.
            if content is not None and holds_entries(content) and content not in found.values():
                found[backend] = content
        return [RankDump(rank, backend, stamped(content, rank)) for backend, content in found.items()]


def clear_dumps(run: Path) -> None:
    """Remove what an earlier attempt of the run has left, which would be judged together with this one's."""
    for path in (run / FLIGHT_FOLDER).glob("rank*-*.json"):
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):  # it is not there, or holds what somebody else has put into it
        (run / FLIGHT_FOLDER).rmdir()


def write_dumps(folder: Path, dumps: Sequence[RankDump]) -> None:
    """Write each dump to ``folder/rank<R>-<backend>.json``; the folder is made where there is something.

    Raises:
        OSError: the system refuses.
    """
    if dumps:
        folder.mkdir(exist_ok=True, parents=True)
    for dump in dumps:
        write_whole(folder / dump.file_name, dump.content)


def judged(dumps: Sequence[RankDump], nranks: int, host_of: Mapping[int, str]) -> Judgement:
    """Who was stuck where, as these dumps tell it."""
    from ncclbench.flight.dumps import read_bytes
    from ncclbench.flight.judge import judge
    from ncclbench.flight.model import Evidence

    read = [read_bytes(dump.content, dump.file_name) for dump in dumps]
    return judge(
        Evidence(
            dumps=tuple(dump for found, _ in read for dump in found),
            refused=tuple(refused for _, others in read for refused in others),
            nranks=nranks,
            host_of=host_of,
        )
    )
