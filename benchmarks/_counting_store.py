"""The store's part in a launch of any number of ranks, without the ranks: what each asks of it is counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

from torch._C._distributed_c10d import Store

from ncclbench.plan.model import Plan
from ncclbench.supervise import rendezvous, session
from ncclbench.supervise.blame import WEIGHTS, Failure, RankState, weight
from ncclbench.supervise.launch import Assignment, Job
from ncclbench.supervise.launcher import Seat
from ncclbench.supervise.rendezvous import Rendezvous, meet_others
from ncclbench.supervise.watch import Watch

# So many of the ranks other than 0 go through everything; what the others do is alike.
SAMPLES = 16


class Counting(Store):
    """One rank's connection to a store in this process' memory, in place of torch's TCPStore."""

    def __init__(self, shared: dict[str, bytes]) -> None:
        super().__init__()
        self._shared = shared
        self.operations = 0
        self.nbytes = 0

    def _counted(self, key: str, *values: bytes) -> None:
        self.operations += 1
        self.nbytes += len(key) + sum(map(len, values))

    def set(self, key: str, value: Any) -> None:
        self._shared[key] = value.encode() if isinstance(value, str) else bytes(value)
        self._counted(key, self._shared[key])

    def get(self, key: str) -> bytes:
        self._counted(key, self._shared[key])
        return self._shared[key]

    def add(self, key: str, more: int) -> int:
        value = int(self._shared.get(key, b"0")) + more
        self._shared[key] = str(value).encode()
        self._counted(key, self._shared[key])
        return value

    def check(self, keys: Sequence[str]) -> bool:
        for key in keys:
            self._counted(key)
        return all(key in self._shared for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self._counted(key)
        if missing := [key for key in keys if key not in self._shared]:
            raise RuntimeError(f"nobody else runs meanwhile, and {missing} is not there")

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def has_extended_api(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was asked of the store in one part of a launch.

    Attributes:
        what: the part.
        leader: operations and bytes of rank 0.
        other: of the rank that asks the most of the others.
        operations, nbytes: of all ranks together, those that were not simulated like the mean of the others.
    """

    what: str
    leader: tuple[int, int]
    other: tuple[int, int]
    operations: int
    nbytes: int


class Simulation:
    """Supervisors of ``nranks`` ranks, ``local_ranks`` on each host, that take turns in one thread."""

    def __init__(self, plan: Plan, local_ranks: int) -> None:
        self.plan, self.nranks = plan, plan.nranks
        self._local_ranks = local_ranks
        self._shared: dict[str, bytes] = {}
        self._clients: dict[int, Counting] = {}
        self.sampled = [1 + (self.nranks - 2) * n // (SAMPLES - 1) for n in range(SAMPLES)]

    def run(self) -> list[Traffic]:
        """Meeting, a launch, the end; then what a death and a hang of all ranks would make of it."""
        jobs = {}
        with mock.patch.object(rendezvous, "_await_store"):
            for rank in range(self.nranks):
                job = self._join(rank)
                if rank == 0 or rank in self.sampled:
                    jobs[rank] = job
        everybody = range(self.nranks)
        jobs[0].meet_everybody()
        place = jobs[0].placement()
        assert (place.hosts[0], place.hosts[-1]) == (0, (self.nranks - 1) // self._local_ranks)
        traffic = [self._counted("meeting", everybody)]
        assignment = Assignment(0, self.plan, {}, 0, 60.0)
        jobs[0].meeting.publish("assignment/0", assignment.to_json())
        jobs[0].meeting.publish("exit", 0)
        told: list[Assignment] = []
        with mock.patch.object(session, "launch", lambda job, told_of, answer, logs: told.append(told_of)):
            assert [session.follow(jobs[rank]) for rank in self.sampled] == [0] * SAMPLES
        assert all(each.plan == self.plan for each in told)
        traffic.append(self._counted("assignment and exit", [0, *self.sampled]))
        for job in jobs.values():
            job.meeting.failed()
        traffic.append(self._counted("a look at the others", [0, *self.sampled]))
        left, gone = (f"{jobs[0].meeting._name}/{key}" for key in ("left", "gone"))
        for number, rank in enumerate([*self.sampled, 0]):
            self._shared[left] = str(self.nranks - 1).encode()
            self._shared[gone] = str(self.nranks - 1 if rank == 0 else rank - 1).encode()
            jobs[rank].meeting.leave_together()
            assert int(self._shared[left]) == self.nranks, number
        traffic.append(self._counted("last barrier", [0, *self.sampled]))
        return [*traffic, self._all_fail(jobs), self._all_hang(jobs)]

    def looks_per_s(self) -> float:
        """What all supervisors together ask in each second in which they wait for something."""
        return self.nranks / Rendezvous(Counting({}), "", 0, self.nranks, ("", 0)).pause_s(0.05)

    def _join(self, rank: int) -> Job:
        client = self._clients[rank] = Counting(self._shared)
        local = rank % self._local_ranks
        seat = Seat(rank, self.nranks, local, self._local_ranks, "torchrun", "", 1, None, True)
        host = (f"node{rank // self._local_ranks:05d}", "c0ffee00-1111-2222-3333-444455556666")
        signals: Any = SimpleNamespace(check=lambda: None)
        with (
            mock.patch.object(rendezvous, "connect", return_value=client),
            mock.patch.object(rendezvous, "host_identity", return_value=host),
        ):
            meeting = meet_others(seat, {}, signals)
        return Job(seat, self.nranks, self._local_ranks, meeting, signals)

    def _all_fail(self, jobs: dict[int, Job]) -> Traffic:
        """A rank dies, and all others' workers see its connection close; each hears what others have told."""
        texts = ("died of SIGKILL", "raised RuntimeError: Connection closed by peer [10.0.0.1]:41753")
        for rank in range(self.nranks):
            failure = Failure(rank, f"rank {rank} on node {texts[rank != 1]}", rank == 1)
            job = jobs.get(rank) or self._again(rank)
            job.meeting.publish_failure(asdict(failure), weight(failure))
        for job in jobs.values():
            heard = [Failure(**each) for each in job.meeting.failures(WEIGHTS)]
            assert any(each.sure for each in heard)
        return self._counted("all fail", [0, *self.sampled])

    def _all_hang(self, jobs: dict[int, Job]) -> Traffic:
        """No rank moves any more: all tell where they are, one judges."""
        self._shared.pop(f"{jobs[0].meeting._name}/failed", None)
        states = [RankState(rank, "node", 7, True, "in all_reduce") for rank in range(self.nranks)]
        for rank in (*range(1, self.nranks), 0):
            job = jobs.get(rank) or self._again(rank)
            job.meeting.publish(f"hung/{rank}", asdict(states[rank]))
            job.meeting.count("hung", 1)
        slots: Any = SimpleNamespace(slots=[None])
        for rank, job in sorted(jobs.items()):
            watch = Watch(slots, job.meeting, job.signals, lambda at: "", 60.0, lambda slot, said: None, None)
            assert "none stands out" in watch._judged([states[rank]]).text
        return self._counted("all hang", [0, *self.sampled])

    def _again(self, rank: int) -> Job:
        """A supervisor that is not one of the samples, once more."""
        meeting = Rendezvous(self._clients[rank], "ncclbench-0", rank, self.nranks, ("", 0))
        return Job(None, self.nranks, self._local_ranks, meeting, SimpleNamespace())  # type: ignore[arg-type]

    def _counted(self, what: str, ranks: Sequence[int]) -> Traffic:
        """Since the last time, of the ranks that took part; the counters begin anew."""
        mine = {rank: (self._clients[rank].operations, self._clients[rank].nbytes) for rank in ranks}
        others = [counts for rank, counts in mine.items() if rank != 0]
        total = Counter[str]()
        for kind in (0, 1):
            share = sum(counts[kind] for counts in others) / len(others)
            total["operations" if kind == 0 else "bytes"] = round(mine[0][kind] + share * (self.nranks - 1))
        for client in self._clients.values():
            client.operations = client.nbytes = 0
        return Traffic(what, mine[0], max(others), total["operations"], total["bytes"])


def traffic_of(plan: Plan, local_ranks: int) -> tuple[list[Traffic], float]:
    """The parts of a launch, and seconds that simulating them took."""
    begun = time.perf_counter()
    return Simulation(plan, local_ranks).run(), time.perf_counter() - begun
