"""Where the processes of one run meet: a TCP store, and what supervisors agree on through it."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from ncclbench.environment.host import host_identity
from ncclbench.errors import MeasurementError, RequestError
from ncclbench.supervise.launcher import Seat
from ncclbench.supervise.signals import EndSignals
from ncclbench.supervise.store_process import StoreProcess
from ncclbench.tables.topologies import Placement

_CONNECT_S = 120.0
_LAST_BARRIER_S = 15.0


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
        self._store = PrefixStore(name, store)
        self._raw = store
        self._address = address
        self.rank = rank
        self.world_size = world_size

    def worker_store(self, launch: int) -> Any:
        """For a worker: its own connection, under a prefix of this launch alone."""
        return PrefixStore(f"{self._name}/launch{launch}", _connect(self._address))

    def publish(self, key: str, thing: Any) -> None:
        """Tell every supervisor; plain data."""
        self._store.set(key, json.dumps(thing))

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
        return json.loads(self._store.get(key))

    def publish_failure(self, failure: dict[str, Any]) -> None:
        """Tell every supervisor that a rank has failed."""
        number = self._store.add("failures", 1)
        self._store.set(f"failure/{number}", json.dumps(failure))

    def failed(self) -> bool:
        """Whether any supervisor has told of a failure."""
        return self.known("failure/1")

    def failures(self) -> list[dict[str, Any]]:
        """What supervisors have told of failures up to now."""
        keys = [f"failure/{number + 1}" for number in range(self._store.add("failures", 0))]
        return [json.loads(self._store.get(key)) for key in keys if self.known(key)]

    def placement(self) -> Placement:
        """Which rank is on which host, as every supervisor has told.

        Raises:
            MeasurementError: one did not in time.
        """
        numbers: dict[str, int] = {}
        hosts = (json.dumps(self.read(_host_key(rank), _CONNECT_S)) for rank in range(self.world_size))
        return Placement(tuple(numbers.setdefault(host, len(numbers)) for host in hosts))

    def leave_together(self) -> None:
        """A last barrier, so that no launcher sees a rank end while others still work."""
        if self.world_size == 1:
            return
        try:
            left = self._store.add("left", 1)
            deadline = time.monotonic() + _LAST_BARRIER_S
            while left < self.world_size and time.monotonic() < deadline:
                time.sleep(0.05)
                left = self._store.add("left", 0)
        except RuntimeError:
            # The store went with rank 0's process, which leaves when it has seen everybody.
            return


def _host_key(rank: int) -> str:
    return f"host/{rank}"


def _connect(address: tuple[str, int]) -> Any:
    return TCPStore(*address, is_master=False, timeout=timedelta(seconds=_CONNECT_S))


def _await_store(seat: Seat, signals: EndSignals) -> None:
    """Wait until somebody listens at rank 0's address: torch's own wait would heed no signal."""
    where = f"{seat.master_addr}:{seat.master_port}"
    deadline = time.monotonic() + _CONNECT_S
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
                    f"rank {seat.rank} found nobody at {where} for {_CONNECT_S:.0f} s ({error}): "
                    "start rank 0, or set MASTER_ADDR and MASTER_PORT to where it can be reached"
                ) from error
        signals.check()
        time.sleep(0.2)


def meet_alone() -> Rendezvous:
    """For one supervisor and the workers it forks: a store on the loopback."""
    server = StoreProcess("127.0.0.1", 0, _CONNECT_S)
    name = f"ncclbench-{secrets.token_hex(4)}"
    return Rendezvous(_connect(server.address), name, 0, 1, server.address, server)


def meet_others(seat: Seat, environ: Mapping[str, str], signals: EndSignals) -> Rendezvous:
    """For a supervisor that a launcher has started beside others.

    Raises:
        RequestError: two processes claim one rank, or the store cannot be reached.
        Interrupted: an ending signal came while waiting for it.
    """
    hosts_store = seat.rank == 0 and not seat.uses_agent_store
    address = (seat.master_addr, seat.master_port)
    if not hosts_store:
        _await_store(seat, signals)
    try:
        server = StoreProcess(*address, _CONNECT_S) if hosts_store else None
        store = _connect(address)
    except (RuntimeError, OSError, RequestError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(
            f"rank {seat.rank} cannot meet the others at {address[0]}:{address[1]} ({first}): "
            "if every process believes it is rank 0 the launcher's variables did not reach them; "
            "else set MASTER_ADDR and MASTER_PORT to a reachable address and a free port"
        ) from error
    # A restarted torchrun job meets the same store again: its restart count keeps the names apart.
    name = f"ncclbench-{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    meeting = Rendezvous(store, name, seat.rank, seat.world_size, address, server)
    if PrefixStore(name, store).add(f"claims/{seat.rank}", 1) > 1:
        raise RequestError(
            f"two processes claim rank {seat.rank} of {seat.world_size}: "
            "the launcher's rank variables did not reach every process, so nothing was started"
        )
    meeting.publish(_host_key(seat.rank), host_identity())
    return meeting
