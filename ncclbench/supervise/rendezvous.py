"""Where the processes of one run meet: a TCP store, and what supervisors agree on through it."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from ncclbench import __version__
from ncclbench.environment.host import format_ranges, host_identity
from ncclbench.errors import MeasurementError, RequestError, StoreLost
from ncclbench.supervise.launcher import STEP_VARIABLE, Seat
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.store_process import StoreProcess
from ncclbench.tables.topologies import Placement
from ncclbench.units import noun_text
from ncclbench.worker.meeting import CONNECT_S, StorePlace, connect

_LAST_BARRIER_S = 15.0
# Where the run has failed: some may be gone without a word, and the rest has been told.
_FAILED_BARRIER_S = 5.0
# Of all supervisors together, while they wait: a store answers some ten thousand a second.
_LOOKS_PER_S = 20_000
# A rank's death makes all others fail: if each read what each has told, the store would not get through.
_MOST_HEARD = 16
_FAILED = "failed"
_COMPRESSED_FROM = 4096
# No JSON begins so.
_MARK = "z"
# Counts supervisors that have told who they are.
_INTRODUCED = "introduced"


class Rendezvous:
    """The store of one run, and this supervisor's view of it.

    Attributes:
        rank, world_size: of this supervisor among the supervisors; a lone one is rank 0 of 1.
    """

    def __init__(
        self,
        store: Any,
        name: str,
        rank: int,
        world_size: int,
        address: tuple[str, int],
        server: StoreProcess | None = None,
    ) -> None:
        self._server = server  # as long as this lives
        self._name = name
        self._store: Any = _Asked(PrefixStore(name, store), address)
        self._address = address
        self._everybody: list[dict[str, Any]] = []
        self.rank = rank
        self.world_size = world_size

    def store_of(self, launch: int) -> StorePlace:
        """Where the workers of a launch meet."""
        return StorePlace(self._address, f"{self._name}/launch{launch}")

    def worker_store(self, launch: int) -> Any:
        """For a worker: its own connection, under a prefix of this launch alone."""
        return self.store_of(launch).connect()

    def check_store(self, nothing_moves: bool = False) -> None:
        """Find out at once when the store's process has ended, where it is this supervisor's own.

        Raises:
            StoreLost: it has; or, where nothing moves any more, it is stopped.
        """
        if self._server is not None:
            self._server.check(nothing_moves)

    def publish(self, key: str, thing: Any) -> None:
        """Tell every supervisor; plain data."""
        self._store.set(key, _packed(json.dumps(thing, separators=(",", ":"))))

    def known(self, key: str) -> bool:
        """Whether somebody has published the key."""
        return bool(self._store.check([key]))

    def read(self, key: str, timeout_s: float) -> Any:
        """What was published under the key.

        Raises:
            MeasurementError: nobody did in time.
        """
        try:
            self._store.wait([key], timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise MeasurementError(
                f"rank {self.rank} waited {timeout_s:.0f} s for rank 0 ({key}): is its process still there?"
            ) from error
        return json.loads(_unpacked(self._store.get(key)))

    def pause_s(self, least_s: float) -> float:
        """Seconds from one look at the store to the next: of thousands who ask, each asks less often."""
        return max(least_s, self.world_size / _LOOKS_PER_S)

    def count(self, key: str, more: int = 0) -> int:
        """What the counter stands at, with ``more`` added to it."""
        return int(self._store.add(key, more))

    def publish_failure(self, failure: dict[str, Any], weight: int) -> None:
        """Tell every supervisor that a rank has failed; of many that fail alike the first ones are heard.

        Args:
            weight: 0 for what was nobody else's fault, larger for what is the likelier a consequence.
        """
        number = self.count(f"failures/{weight}", 1)
        if number <= _MOST_HEARD:
            self._store.set(f"failure/{weight}/{number}", json.dumps(failure))
            self._store.set(_FAILED, "1")

    def failed(self) -> bool:
        """Whether any supervisor has told of a failure."""
        return self.known(_FAILED)

    def failures(self, weights: int) -> list[dict[str, Any]]:
        """What supervisors have told of failures up to now, of ``weights`` below this."""
        counts = [min(self.count(f"failures/{weight}"), _MOST_HEARD) for weight in range(weights)]
        keys = [f"failure/{weight}/{n + 1}" for weight, count in enumerate(counts) for n in range(count)]
        return [json.loads(self._store.get(key)) for key in keys if self.known(key)]

    def introduce(self) -> None:
        """Tell who this supervisor is, and of which versions."""
        versions = {"ncclbench": __version__, "torch": torch.__version__}
        self.publish(_who_key(self.rank), {"host": host_identity(), "versions": versions})
        self._store.add(_INTRODUCED, 1)

    def meet_everybody(self, signals: EndSignals) -> None:
        """Rank 0: wait until every supervisor has introduced itself, and look whether they are alike.

        Versions are compared before anything else is said: others may not understand it.

        Raises:
            RequestError: some did not come, or have other versions.
            Interrupted: an ending signal came meanwhile.
        """
        deadline = time.monotonic() + CONNECT_S
        while self._store.add(_INTRODUCED, 0) < self.world_size:
            if time.monotonic() > deadline:
                absent = [rank for rank in range(self.world_size) if not self.known(_who_key(rank))]
                raise RequestError(
                    f"{_ranks(absent)} of {self.world_size} did not come within {CONNECT_S:.0f} s: "
                    "look at what their processes say, and start all ranks with one launcher"
                )
            signals.check()
            time.sleep(0.01)
        told = self._store.multi_get([_who_key(rank) for rank in range(self.world_size)])
        self._everybody = [json.loads(_unpacked(each)) for each in told]
        for name, mine in self._everybody[0]["versions"].items():
            others = [each["versions"].get(name) for each in self._everybody]
            unlike = [rank for rank, version in enumerate(others) if version != mine]
            if unlike:
                host = self._everybody[unlike[0]]["host"][0]
                raise RequestError(
                    f"{name} differs between ranks: {others[unlike[0]]} on {_ranks(unlike)} ({host}), {mine} "
                    f"on rank 0 ({self._everybody[0]['host'][0]}): install one version on all hosts"
                )

    def placement(self) -> Placement:
        """Which rank is on which host, as every supervisor has told; after ``meet_everybody``."""
        numbers: dict[str, int] = {}
        hosts = (json.dumps(each["host"]) for each in self._everybody)
        return Placement(tuple(numbers.setdefault(host, len(numbers)) for host in hosts))

    def host_of(self, rank: int) -> str | None:
        """The name of a rank's host, on rank 0 after ``meet_everybody``; None elsewhere."""
        return str(self._everybody[rank]["host"][0]) if self._everybody else None

    def leave_together(self) -> None:
        """A last barrier, so that no launcher sees a rank end while others still work.

        The store may go with rank 0's process, and torch tells of a lost connection in forty lines: so rank 0
        goes when no other asks it any more. Nobody waits for a rank that has not come yet: a launcher that
        ends a job kills it after half a minute or less.
        """
        if self.world_size == 1:
            return
        # A rank 0 that was killed has taken the store with it.
        with contextlib.suppress(RuntimeError):
            limit_s = _FAILED_BARRIER_S if self.failed() else _LAST_BARRIER_S
            self._store.add("left", 1)
            self._await_count("left", self._store.add(_INTRODUCED, 0), limit_s)
            if self.rank == 0:
                self._await_count("gone", self._store.add("left", 0) - 1, limit_s)
            else:
                self._store.add("gone", 1)

    def _await_count(self, key: str, wanted: int, limit_s: float) -> None:
        """Return when so many have been counted, or after so long."""
        deadline = time.monotonic() + limit_s
        while self._store.add(key, 0) < wanted and time.monotonic() < deadline:
            time.sleep(self.pause_s(0.05))


class _Asked:
    """A store of torch's whose loss is said in one line."""

    def __init__(self, store: Any, address: tuple[str, int]) -> None:
        self._store = store
        self._where = f"{address[0]}:{address[1]}"

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def ask(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            except RuntimeError as error:
                raise StoreLost(
                    f"the store at {self._where} does not answer any more: rank 0's process is gone, or the "
                    "network to its host"
                ) from error

        return ask


def _packed(text: str) -> str:
    """A plan is long and repeats itself, is read by every rank, and a TCPStore takes 8 MiB at most."""
    return (
        text
        if len(text) < _COMPRESSED_FROM
        else _MARK + base64.b85encode(zlib.compress(text.encode())).decode()
    )


def _unpacked(content: bytes) -> bytes:
    mark = _MARK.encode()
    return zlib.decompress(base64.b85decode(content[len(mark) :])) if content.startswith(mark) else content


def _who_key(rank: int) -> str:
    return f"who/{rank}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"{noun_text(len(ranks), 'rank')} {format_ranges(ranks)}"


def _await_store(seat: Seat, signals: EndSignals) -> None:
    """Wait until somebody listens at rank 0's address: torch's own wait would heed no signal."""
    where = f"{seat.master_addr}:{seat.master_port}"
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            socket.create_connection((seat.master_addr, seat.master_port), timeout=2.0).close()
            return
        except socket.gaierror as error:
            raise RequestError(
                f"rank {seat.rank} cannot find the host of MASTER_ADDR={seat.master_addr} "
                f"({error.strerror}): set it to a name or address that every rank can reach"
            ) from error
        except OSError as error:
            if time.monotonic() > deadline:
                raise RequestError(
                    f"rank {seat.rank} found nobody at {where} for {CONNECT_S:.0f} s ({error}): "
                    "start rank 0, or set MASTER_ADDR and MASTER_PORT to where it can be reached"
                ) from error
        signals.check()
        time.sleep(0.2)


def _connected(address: tuple[str, int], signals: EndSignals) -> Any:
    """A connection to the store, as long as it takes up to ``CONNECT_S``.

    Whoever listens there may be no store: torch then waits for its answer, deaf to signals, so it waits in a
    thread that nobody waits for when the process is to end.

    Raises:
        RuntimeError: no store answers there.
        Interrupted: an ending signal came meanwhile.
    """
    made: Future[Any] = Future()

    def make() -> None:
        try:
            made.set_result(connect(address))
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=make, name="connecting", daemon=True).start()
    while not made.done():
        signals.check()
        time.sleep(0.005)
    return made.result()


def meet_alone() -> Rendezvous:
    """For one supervisor and the workers it forks: a store on the loopback.

    Raises:
        RequestError: there can be none.
    """
    try:
        server = StoreProcess("127.0.0.1", 0, CONNECT_S)
    except RequestError as error:
        raise RequestError(
            f"no store can be served on the loopback for the ranks to meet at ({error}): look at its "
            "interface (ip address show lo) and at what this user may open and start (ulimit -a)"
        ) from None
    name = f"ncclbench-{secrets.token_hex(4)}"
    return Rendezvous(connect(server.address), name, 0, 1, server.address, server)


def meet_others(seat: Seat, environ: Mapping[str, str], signals: EndSignals) -> Rendezvous:
    """For a supervisor that a launcher has started beside others.

    Raises:
        RequestError: two processes claim one rank, or the store cannot be reached.
        Interrupted: an ending signal came while waiting for it.
    """
    # A step of a preset meets in the store of the ranks that started it, under a prefix of its own.
    step = environ.get(STEP_VARIABLE)
    hosts_store = seat.rank == 0 and not seat.uses_agent_store and step is None
    address = (seat.master_addr, seat.master_port)
    if not hosts_store:
        _await_store(seat, signals)
    try:
        server = StoreProcess(*address, CONNECT_S) if hosts_store else None
        store = _connected(address, signals)
    except (RuntimeError, OSError, RequestError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(
            f"rank {seat.rank} cannot meet the others at {address[0]}:{address[1]} ({first}): "
            "if every process believes it is rank 0 the launcher's variables did not reach them; "
            "else set MASTER_ADDR and MASTER_PORT to a reachable address and a free port"
        ) from error
    # A restarted torchrun job meets the same store again: its restart count keeps the names apart.
    name = f"ncclbench-{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" + (f"-{step}" if step else "")
    meeting = Rendezvous(store, name, seat.rank, seat.world_size, address, server)
    if PrefixStore(name, store).add(f"claims/{seat.rank}", 1) > 1:
        raise RequestError(
            f"two processes claim rank {seat.rank} of {seat.world_size}: "
            "the launcher's rank variables did not reach every process, so nothing was started"
        )
    meeting.introduce()
    return meeting
