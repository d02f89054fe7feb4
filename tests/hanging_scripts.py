"""Scripts that ``hanging`` runs, of one group: what each rank does, and how many there are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hanging import AWAY_S, TIMEOUT_S, Job


@dataclass(frozen=True)
class Script:
    """A function of a rank's job; ``ring``: entries of its recorder; ``deadline_s``: when it is killed."""

    run: Callable[[Job], None]
    nranks: int = 4
    ring: int = 2000
    deadline_s: float = 12.0
    timeout_s: float = TIMEOUT_S


SCRIPTS: dict[str, Script] = {}


def script(
    nranks: int = 4, ring: int = 2000, deadline_s: float = 12.0, timeout_s: float = TIMEOUT_S
) -> Callable[[Callable[[Job], None]], Callable[[Job], None]]:
    def keep(run: Callable[[Job], None]) -> Callable[[Job], None]:
        SCRIPTS[run.__name__] = Script(run, nranks, ring, deadline_s, timeout_s)
        return run

    return keep


@script()
def missing_rank(job: Job) -> None:
    for _ in range(3):
        job.all_reduce()
    if job.rank == 2:
        job.stay_away()
    job.all_reduce()


@script(nranks=3)
def missing_from_the_start(job: Job) -> None:
    if job.rank == 1:
        job.stay_away()
    job.dist.barrier()


@script(nranks=5)
def two_missing(job: Job) -> None:
    job.all_reduce()
    if job.rank in (1, 3):
        job.stay_away()
    job.dist.all_gather_into_tensor(job.tensor(20), job.tensor(4))


@script()
def missing_root(job: Job) -> None:
    """The others wait for a broadcast whose source does not come."""
    job.all_reduce()
    if job.rank == 0:
        job.stay_away()
    job.dist.broadcast(job.tensor(), src=0)


@script()
def wrong_collective(job: Job) -> None:
    for _ in range(4):
        job.all_reduce()
    if job.rank == 2:
        job.dist.broadcast(job.tensor(), src=0)
    else:
        job.all_reduce()
    job.dist.barrier()


@script(nranks=2)
def wrong_of_two(job: Job) -> None:
    job.all_reduce()
    if job.rank == 0:
        job.dist.barrier()
    else:
        job.all_reduce()
    job.dist.barrier()


@script()
def wrong_size(job: Job) -> None:
    job.all_reduce()
    job.all_reduce(count=5000 if job.rank == 1 else 4000)
    job.dist.barrier()


@script()
def wrong_size_of_gather(job: Job) -> None:
    job.all_reduce()
    count = 6 if job.rank == 3 else 4
    job.dist.all_gather_into_tensor(job.tensor(4 * count), job.tensor(count))
    job.dist.barrier()


@script()
def wrong_dtype(job: Job) -> None:
    job.all_reduce()
    job.all_reduce(dtype="float64" if job.rank == 3 else "float32")
    job.dist.barrier()


@script()
def wrong_dtype_of_equal_size(job: Job) -> None:
    job.all_reduce()
    job.all_reduce(dtype="int32" if job.rank == 0 else "float32")
    job.dist.barrier()


def gather(job: Job, root: int) -> None:
    parts = [job.tensor() for _ in range(job.nranks)] if job.rank == root else None
    job.dist.gather(job.tensor(), parts, dst=root)


@script()
def wrong_root_of_gather(job: Job) -> None:
    for _ in range(3):
        gather(job, 0)
    gather(job, 2 if job.rank == 2 else 0)
    job.dist.barrier()


@script()
def wrong_root_of_scatter(job: Job) -> None:
    for turn in range(4):
        root = 1 if turn == 3 and job.rank == 1 else 0
        parts = [job.tensor() for _ in range(job.nranks)] if job.rank == root else None
        job.dist.scatter(job.tensor(), parts, src=root)
    job.dist.barrier()


@script(nranks=3)
def wrong_root_of_reduce(job: Job) -> None:
    """Nothing recorded tells the roots apart; one waits for a part that another has sent elsewhere."""
    job.all_reduce()
    job.dist.reduce(job.tensor(), dst=2 if job.rank == 2 else 0)


@script(deadline_s=6.0)
def stuck_before(job: Job) -> None:
    """A rank that is frozen before its operation, and so leaves no dump."""
    job.all_reduce()
    if job.rank == 3:
        job.stop()
    job.all_reduce()


@script(nranks=3, deadline_s=6.0)
def stuck_inside(job: Job) -> None:
    """A rank that is frozen while the data flow."""
    job.all_reduce()
    work = job.all_reduce(count=1 << 24, async_op=True)
    if job.rank == 1:
        time.sleep(0.01)
        job.stop()
    work.wait()
    job.dist.barrier()


@script()
def stuck_after(job: Job) -> None:
    job.all_reduce()
    job.all_reduce()
    if job.rank == 0:
        job.stay_away()
    job.dist.barrier()


@script(ring=20)
def wrapped(job: Job) -> None:
    for _ in range(100):
        job.all_reduce()
    if job.rank == 2:
        job.stay_away()
    job.all_reduce()


@script(ring=20)
def wrapped_mismatch(job: Job) -> None:
    for _ in range(100):
        job.all_reduce()
    if job.rank == 1:
        job.dist.broadcast(job.tensor(), src=1)
    job.all_reduce()
    job.dist.barrier()


@script()
def extra_of_another_size(job: Job) -> None:
    for turn in range(8):
        if job.rank == 2 and turn == 3:
            job.all_reduce(count=9000)
        job.all_reduce(count=4000)


@script()
def extra_of_another_kind(job: Job) -> None:
    for turn in range(8):
        if job.rank == 3 and turn == 5:
            job.dist.barrier()
        job.all_reduce()


@script()
def one_more_than_the_others(job: Job) -> None:
    for turn in range(8):
        if job.rank == 1 and turn == 3:
            job.all_reduce()
        job.all_reduce()
    time.sleep(0.0 if job.rank == 1 else AWAY_S)


@script()
def early_exit(job: Job) -> None:
    for turn in range(10):
        if job.rank == 3 and turn == 5:
            return
        job.all_reduce()


@script()
def uneven_all_to_all(job: Job) -> None:
    """Rank r sends s + 1 elements to rank s, and so receives r + 1 from each: all differ, and all is well."""
    for _ in range(3):
        sends = [other + 1 for other in range(job.nranks)]
        receives = [job.rank + 1] * job.nranks
        job.dist.all_to_all_single(job.tensor(sum(receives)), job.tensor(sum(sends)), receives, sends)


@script(nranks=3, timeout_s=20.0)
def in_flight(job: Job) -> None:
    """Always some that are not waited for yet, with the snapshot at any of them."""
    until = time.monotonic() + 1.5
    while True:
        works = [job.all_reduce(count=1 << 16, async_op=True) for _ in range(4)]
        for work in works:
            work.wait()
        going = job.torch.tensor([float(time.monotonic() < until)])
        job.dist.all_reduce(going)
        if going.item() < job.nranks:
            break


@script(nranks=3, timeout_s=20.0)
def one_is_slower(job: Job) -> None:
    """All is well, and at nearly any moment two wait for the third."""
    for _ in range(8):
        time.sleep(0.25 if job.rank == 2 else 0.01)
        job.all_reduce()


@script()
def missing_from_a_burst(job: Job) -> None:
    """The others had several under way."""
    job.all_reduce()
    if job.rank == 1:
        job.stay_away()
    works = [job.all_reduce(async_op=True) for _ in range(6)]
    for work in works:
        work.wait()


@script(nranks=5)
def wrong_root_of_broadcast(job: Job) -> None:
    job.all_reduce()
    job.dist.broadcast(job.tensor(), src=3 if job.rank == 1 else 0)
    job.dist.barrier()


@script()
def killed(job: Job) -> None:
    job.all_reduce()
    if job.rank == 2:
        time.sleep(0.3)
        job.kill()
    job.all_reduce()


@script()
def objects(job: Job) -> None:
    """What torch builds from several collectives, and a missing rank after them."""
    for turn in range(3):
        found = [None] * job.nranks
        job.dist.all_gather_object(found, {"rank": job.rank, "text": "x" * turn})
        job.dist.broadcast_object_list([turn], src=0)
        job.dist.monitored_barrier()
        job.dist.reduce_scatter(job.tensor(), [job.tensor() for _ in range(job.nranks)])
    if job.rank == 3:
        job.stay_away()
    job.all_reduce()


@script()
def waits_for_a_message(job: Job) -> None:
    """Gloo does not record messages: rank 0 waits for one, and all others for rank 0."""
    job.all_reduce()
    if job.rank == 0:
        job.dist.recv(job.tensor(), src=3)
    job.all_reduce()


@script()
def wrong_size_of_broadcast(job: Job) -> None:
    job.all_reduce()
    job.dist.broadcast(job.tensor(3000 if job.rank == 2 else 4000), src=0)
    job.dist.barrier()


@script()
def swapped(job: Job) -> None:
    """One rank issues two in the other order, without waiting in between."""
    job.all_reduce()
    dtypes = ("int32", "float32") if job.rank == 1 else ("float32", "int32")
    works = [job.all_reduce(dtype=dtype, async_op=True) for dtype in dtypes]
    for work in works:
        work.wait()


@script(nranks=2)
def missing_of_two(job: Job) -> None:
    for _ in range(3):
        job.all_reduce()
    if job.rank == 1:
        job.stay_away()
    job.dist.all_to_all_single(job.tensor(), job.tensor())
