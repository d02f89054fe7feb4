"""The one-sided ways: endpoints of torch.distributed._transport between the trainer and each generator.

Nothing here ends with the interpreter: a worker leaves by os._exit, because the agents of some transports
crash an interpreter that ends (UCX), and what was measured is with the supervisor by then. Endpoints are
closed in the middle of a run only where they would disturb other ways, and never before what they measured
was told.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ncclbench.tables.transfers import CPU_TRANSPORT, Transfer
from ncclbench.worker.compat import torch_version
from ncclbench.worker.two_sided import TRAINER

_OLDEST_TORCH = (2, 15)
_BOOTSTRAP_S = 30.0

# What a rank has registered besides the weights: int64 words of CPU memory.
STAMP, ACK, PAYLOAD = "stamp", "ack", "payload"
_EXPOSED = (STAMP, ACK, PAYLOAD)
_OWN = "own"
# Between two looks at a stamp where nothing else is to be done: short beside a transfer, and long enough that
# whoever looks does not take a core from whoever copies.
STAMP_PAUSE_S = 50e-6
LARGEST_PAYLOAD = 4096

# Of every process: whatever happens, these are never taken down by the garbage collector.
_KEPT: list[Any] = []


def why_not(transfer: Transfer, device_kind: str, one_host: bool) -> str | None:
    """Why a one-sided way cannot be had here, known without trying it; None where it may be."""
    if torch_version() < _OLDEST_TORCH or not _is_there("torch.distributed._transport"):
        return f"needs torch >= 2.15 with torch.distributed._transport, this is {torch.__version__}"
    if device_kind not in transfer.devices:
        return f"moves {' and '.join(transfer.devices)} memory only, the weights are on {device_kind}"
    if transfer.one_host and not one_host:
        return "all ranks must be on one host"
    if transfer.package is not None and not _is_there(transfer.package):
        return f"needs the package {transfer.package}: {transfer.mend}"
    return None


def _is_there(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@dataclass(slots=True)
class _Link:
    """The trainer's or a generator's way to one peer."""

    endpoint: Any
    # Of the weights here, to read from and to write to, and there.
    views: list[Any]
    mutable: list[Any]
    remote: list[Any]
    words: dict[str, Any]
    remote_words: dict[str, Any]


class OneSided:
    """One rank's endpoints of one transport.

    Attributes:
        stamp: version that this rank's weights have; a generator's is written by the trainer.
        acks: by generator, the version that it has read; on the trainer, written by them.
        payload: for small messages.
        descriptors: by peer, where to reach what is registered here, as bytes.
    """

    def __init__(
        self, name: str, rank: int, nranks: int, tensors: Sequence[torch.Tensor], timeout_s: float
    ) -> None:
        """Connect and register; every rank calls it, then ``meet``.

        Args:
            name: of the transport.
            tensors: the weights.
            timeout_s: of every transfer.

        Raises:
            Exception: whatever a transport raises.
        """
        from torch.distributed._transport import new_transport_rank

        if name == CPU_TRANSPORT:
            from ncclbench.worker import vm_transport

            vm_transport.register()
        self.rank, self.nranks = rank, nranks
        self.timeout_s = timeout_s
        self.stamp = torch.zeros(1, dtype=torch.int64)
        self.acks = [torch.zeros(1, dtype=torch.int64) for _ in range(nranks)]
        self.payload = torch.zeros(LARGEST_PAYLOAD // 8, dtype=torch.int64)
        self.descriptors: dict[int, list[bytes]] = {}
        self._own = torch.zeros(1, dtype=torch.int64)
        self._links: dict[int, _Link] = {}
        _KEPT.append(self)
        for peer in range(1, nranks) if rank == TRAINER else [TRAINER]:
            endpoint = new_transport_rank(
                name, peer_rank=peer, rank=rank, bootstrap_timeout=min(timeout_s, _BOOTSTRAP_S)
            )
            _KEPT.append(endpoint)
            self._links[peer], self.descriptors[peer] = self._register(endpoint, peer, tensors)

    def _register(
        self, endpoint: Any, peer: int, tensors: Sequence[torch.Tensor]
    ) -> tuple[_Link, list[bytes]]:
        weights = [endpoint.register_memory(tensor) for tensor in tensors]
        generator = peer if self.rank == TRAINER else self.rank
        words = {
            STAMP: endpoint.register_memory(self.stamp),
            ACK: endpoint.register_memory(self.acks[generator]),
            PAYLOAD: endpoint.register_memory(self.payload),
            _OWN: endpoint.register_memory(self._own),
        }
        exposed = [*weights, *(words[name] for name in _EXPOSED)]
        remote = [memory.to_remote_buffer() for memory in exposed]
        link = _Link(
            endpoint,
            [memory.to_view() for memory in weights],
            [memory.to_mutable_view() for memory in weights],
            remote,
            words,
            {},
        )
        return link, [one.serialize() for one in remote]

    def meet(self, everybody: Sequence[dict[int, list[bytes]]]) -> None:
        """Take the peers' descriptors, and move a word each way.

        Args:
            everybody: by rank, its ``descriptors``.

        Raises:
            Exception: whatever a transport raises.
        """
        for peer, link in self._links.items():
            kind = type(link.remote[0])
            theirs = [kind.deserialize(data) for data in everybody[peer][self.rank]]
            count = len(theirs) - len(_EXPOSED)
            link.remote = theirs[:count]
            link.remote_words = dict(zip(_EXPOSED, theirs[count:], strict=True))
        for peer in self._links:
            self.write_payload(peer, 8)
            self.read_payload(peer, 8)

    def close(self) -> None:
        """Let go of all endpoints, once no peer uses them; one that does not close stays as it is."""
        for link in self._links.values():
            with contextlib.suppress(Exception):
                link.endpoint.close(timeout=min(self.timeout_s, _BOOTSTRAP_S))

    # --- weights

    def write(self, generators: Sequence[int]) -> None:
        """The trainer: all tensors into each generator's memory, at once; returns when they are there."""
        works = []
        for peer in generators:
            link = self._links[peer]
            for view, remote in zip(link.views, link.remote, strict=True):
                works.append(link.endpoint.write(view, remote, async_op=True, timeout=self.timeout_s))
        for work in works:
            work.wait()

    def read(self) -> None:
        """A generator: all tensors out of the trainer's memory."""
        link = self._links[TRAINER]
        works = [
            link.endpoint.read(view, remote, async_op=True, timeout=self.timeout_s)
            for view, remote in zip(link.mutable, link.remote, strict=True)
        ]
        for work in works:
            work.wait()

    # --- words

    def tell(self, peer: int, version: int) -> None:
        """The trainer: write a version into a generator's stamp."""
        self._put(peer, STAMP, version)

    def acknowledge(self, version: int) -> None:
        """A generator: tell the trainer that it has read a version."""
        self._put(TRAINER, ACK, version)

    def _put(self, peer: int, word: str, version: int) -> None:
        link = self._links[peer]
        self._own[0] = version
        view = link.words[_OWN].to_view()
        link.endpoint.write(view, link.remote_words[word], timeout=self.timeout_s)

    def look(self) -> int:
        """A generator: the trainer's stamp, read from its memory."""
        link = self._links[TRAINER]
        view = link.words[_OWN].to_mutable_view()
        link.endpoint.read(view, link.remote_words[STAMP], timeout=self.timeout_s)
        return int(self._own[0])

    def write_payload(self, peer: int, nbytes: int) -> None:
        """The first bytes of the payload into the peer's."""
        link = self._links[peer]
        view = link.words[PAYLOAD].to_view(0, nbytes)
        link.endpoint.write(view, link.remote_words[PAYLOAD], timeout=self.timeout_s)

    def read_payload(self, peer: int, nbytes: int) -> None:
        """The same out of the peer's."""
        link = self._links[peer]
        view = link.words[PAYLOAD].to_mutable_view(0, nbytes)
        link.endpoint.read(view, link.remote_words[PAYLOAD], timeout=self.timeout_s)


def cell_of(word: torch.Tensor) -> memoryview:
    """A word of CPU memory as something that is quick to look at."""
    return memoryview(word.numpy()).cast("B").cast("q")  # type: ignore[arg-type]


def await_word(cell: memoryview, version: int, timeout_s: float, pause_s: float) -> None:
    """Look at a word of one's own until it is at least ``version``.

    Args:
        pause_s: between two looks; 0 only lets other threads run.

    Raises:
        TimeoutError: it did not come.
    """
    deadline = time.monotonic() + timeout_s
    while cell[0] < version:
        if time.monotonic() > deadline:
            raise TimeoutError(f"version {version} did not come in {timeout_s:g} s, {cell[0]} is there")
        if pause_s:
            time.sleep(pause_s)
        else:
            os.sched_yield()
