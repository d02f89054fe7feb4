"""What flight recorders tell when a launch fails: each supervisor's part, and on rank 0 everybody's."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import tempfile
import time
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncclbench.environment.host import format_ranges
from ncclbench.supervise.blame import Failure
from ncclbench.supervise.capture import FLIGHT_FOLDER, RankDump, Recorders, judged, write_dumps
from ncclbench.supervise.rendezvous import Rendezvous

if TYPE_CHECKING:
    from ncclbench.flight.model import Judgement

# How long rank 0 waits for the others' dumps; a supervisor that notices the failure sends them at once.
_GATHER_S = 3.0
# What the dumps of all ranks together may take of rank 0's store, compressed.
_SHARED_BYTES = 64 << 20


class FlightEvidence:
    """The dumps of one launch, as far as this supervisor has them."""

    def __init__(
        self, recorders: Recorders, meeting: Rendezvous, run: Path, nranks: int, leads: bool
    ) -> None:
        """Nothing is asked yet.

        Args:
            recorders: of this host's workers.
            run: the run folder, which may be seen from rank 0's host only.
            leads: whether this supervisor is rank 0's, which gathers what all have and judges it.
        """
        self._recorders = recorders
        self._meeting = meeting
        self._folder = run / FLIGHT_FOLDER
        self._nranks = nranks
        self._leads = leads
        self._host = socket.gethostname()
        self._dumps: dict[tuple[int, str], RankDump] = {}
        self._host_of: dict[int, str] = {}
        self._elsewhere: list[str] = []
        self._is_shared = False

    def settle(self) -> None:
        """To be called now and then while workers run."""
        self._recorders.settle()

    def hear(self, rank: int, dumps: Iterable[tuple[str, bytes]]) -> None:
        """What a worker has said of its recorders before it ended."""
        self._add(RankDump(rank, backend, content) for backend, content in dumps)

    def snapshot(self, ranks: Collection[int]) -> None:
        """Ask the workers of these ranks; an earlier dump of a recorder is nearer to the cause and stays."""
        self._host_of |= dict.fromkeys(ranks, self._host)
        self._add(self._recorders.ask(ranks))

    def _add(self, dumps: Iterable[RankDump]) -> None:
        for dump in dumps:
            self._host_of.setdefault(dump.rank, self._host)
            self._dumps.setdefault((dump.rank, dump.backend), dump)

    def share(self) -> None:
        """Tell rank 0's supervisor what this one has, once; nothing where there is no other."""
        if self._meeting.world_size == 1 or self._leads or self._is_shared:
            return
        self._is_shared = True
        own = list(self._dumps.values())
        texts = [base64.b85encode(zlib.compress(dump.content)).decode() for dump in own]
        packed = [[dump.rank, dump.backend, text] for dump, text in zip(own, texts, strict=True)]
        told: dict[str, Any] = {"host": self._host, "dumps": packed, "lie_in": None}
        if sum(map(len, texts)) > _SHARED_BYTES // self._meeting.world_size:
            told = {"host": self._host, "dumps": [], "lie_in": self._written_here(own)}
        with contextlib.suppress(RuntimeError):  # the store has gone with rank 0's process
            self._meeting.publish(f"flight/{self._meeting.rank}", told)

    def _written_here(self, dumps: list[RankDump]) -> str | None:
        """Write what is too large to be sent: into the run folder where this host sees it."""
        folder = self._folder
        try:
            if not (folder.parent / "run.json").is_file():
                folder = Path(tempfile.mkdtemp(prefix="ncclbench-flight-"))
            write_dumps(folder, dumps)
        except OSError:
            return None
        return str(folder)

    def conclude(self, failure: Failure) -> str:
        """The failure in words, with what the recorders say of it; on rank 0 the dumps are kept, too."""
        self.share()
        if not self._leads:
            return failure.text
        if self._meeting.world_size > 1:
            self._gather()
        text = failure.text
        with contextlib.suppress(OSError):
            write_dumps(self._folder, list(self._dumps.values()))
        if self._dumps:
            said = self._said(failure)
            text += f"; flight recorders: {said}" if said else ""
        for where in self._elsewhere:
            text += f"; dumps too large to send lie {where}"
        return text

    def _gather(self) -> None:
        """Take what the other supervisors tell, each its own rank's."""
        missing = set(range(self._meeting.world_size)) - {self._meeting.rank}
        deadline = time.monotonic() + _GATHER_S
        lie_in: dict[tuple[str, str], list[int]] = {}
        with contextlib.suppress(RuntimeError):
            while missing and time.monotonic() < deadline:
                for rank in sorted(missing):
                    if not self._meeting.known(f"flight/{rank}"):
                        continue
                    told = self._meeting.read(f"flight/{rank}", 1.0)
                    missing.discard(rank)
                    self._host_of[rank] = told["host"]
                    for owner, backend, text in told["dumps"]:
                        dump = RankDump(owner, backend, zlib.decompress(base64.b85decode(text)))
                        self._dumps.setdefault((owner, backend), dump)
                    if told["lie_in"] is not None:
                        lie_in.setdefault((told["host"], told["lie_in"]), []).append(rank)
                time.sleep(0.05)
        for (host, folder), ranks in lie_in.items():
            if folder != str(self._folder) or not self._read_back(ranks):
                self._elsewhere.append(f"on {host} in {folder} (rank {format_ranges(ranks)})")

    def _read_back(self, ranks: list[int]) -> bool:
        """Whether dumps that other hosts have written into the run folder are seen from here."""
        seen = True
        for rank in ranks:
            paths = list(self._folder.glob(f"rank{rank}-*.json"))
            seen = seen and bool(paths)
            for path in paths:
                backend = path.stem.partition("-")[2]
                self._dumps.setdefault((rank, backend), RankDump(rank, backend, path.read_bytes()))
        return seen

    def _said(self, failure: Failure) -> str | None:
        """The verdict where it speaks of what has ended the run; None where it has none.

        Not where it blames another than the rank that is known to have died or to hang: recorders do not
        hold everything (of gloo no send and no recv), and where nothing hangs ranks go on while they are
        asked one after the other.
        """
        try:
            judgement = judged(list(self._dumps.values()), self._nranks, self._host_of)
        except Exception as error:  # who failed must be said, whatever becomes of the dumps
            return f"not judged ({type(error).__name__}: {error}), see {self._folder}"
        if judgement.verdict == "healthy" or not judgement.findings:
            return None
        return judgement.message if not failure.names or _blames(judgement, failure.rank) else None


def _blames(judgement: Judgement, rank: int) -> bool:
    first = judgement.findings[0]
    return rank in (first.mismatched_ranks or first.missing_ranks or first.unknown_ranks)


def run_path(run: Path) -> str:
    """The run folder as other hosts may know it."""
    return os.path.abspath(run)
