"""Scripts that ``hanging`` runs, of several groups; with them SCRIPTS holds all that there are."""

from __future__ import annotations

from hanging import Job
from hanging_scripts import SCRIPTS, gather, script

__all__ = ["SCRIPTS"]


@script()
def crossed_halves(job: Job) -> None:
    one, two = (job.group(*range(job.nranks)) for _ in range(2))
    first, second = (one, two) if job.rank < 2 else (two, one)
    job.all_reduce()
    job.all_reduce(group=first)
    job.all_reduce(group=second)


@script(nranks=3)
def crossed_by_one(job: Job) -> None:
    one, two = (job.group(*range(job.nranks)) for _ in range(2))
    first, second = (two, one) if job.rank == 2 else (one, two)
    job.all_reduce(group=first)
    job.dist.barrier(group=second)


@script()
def cascade(job: Job) -> None:
    """The world waits behind a subgroup."""
    pair = job.group(0, 1)
    job.all_reduce()
    if job.rank == 1:
        job.stay_away()
    if job.rank == 0:
        job.all_reduce(group=pair)
    job.dist.barrier()


@script()
def chain(job: Job) -> None:
    """Each pair waits for the next."""
    pairs = [job.group(rank, rank + 1) for rank in range(3)]
    job.all_reduce()
    if job.rank == 3:
        job.stay_away()
    job.all_reduce(group=pairs[job.rank])
    job.dist.barrier()


@script()
def healthy(job: Job) -> None:
    pair = job.group(1, 2)
    count = job.nranks
    for _ in range(5):
        job.all_reduce()
        job.all_reduce(dtype="int64")
        job.dist.broadcast(job.tensor(), src=1)
        job.dist.reduce(job.tensor(), dst=2)
        job.dist.all_gather([job.tensor() for _ in range(count)], job.tensor())
        job.dist.all_gather_into_tensor(job.tensor(4 * count), job.tensor())
        job.dist.reduce_scatter_tensor(job.tensor(4), job.tensor(4 * count))
        gather(job, 3)
        if job.rank in (1, 2):
            job.all_reduce(group=pair)
        job.dist.barrier()


@script(nranks=3)
def subgroup_of_two_without_one(job: Job) -> None:
    """Only one rank of a group ever appears in it."""
    pair = job.group(1, 2)
    job.all_reduce()
    if job.rank == 2:
        job.stay_away()
    if job.rank == 1:
        job.all_reduce(group=pair)


@script(nranks=3)
def made_anew(job: Job) -> None:
    """Groups are destroyed and made again, so that numbers start again."""
    for _ in range(5):
        job.all_reduce()
    job.make_anew()
    job.all_reduce()
    if job.rank == 1:
        job.stay_away()
    job.all_reduce()


@script(nranks=4)
def two_pairs_apart(job: Job) -> None:
    """Two hangs that have nothing to do with each other."""
    pairs = [job.group(0, 1), job.group(2, 3)]
    pair = pairs[job.rank // 2]
    for _ in range(3):
        job.all_reduce(group=pair)
    if job.rank in (1, 2):
        job.stay_away()
    job.all_reduce(group=pair)


@script()
def alone_in_groups_of_one(job: Job) -> None:
    """Meshes have such groups; nobody else is ever seen in them."""
    groups = [job.group(rank) for rank in range(job.nranks)]
    for _ in range(2):
        job.all_reduce()
        job.all_reduce(group=groups[job.rank])


@script()
def mesh(job: Job) -> None:
    """Rows and columns of two; rank 3 skips its column, so the rows wait, and then everybody."""
    rows = [job.group(0, 1), job.group(2, 3)]
    columns = [job.group(0, 2), job.group(1, 3)]
    row, column = rows[job.rank // 2], columns[job.rank % 2]
    for turn in range(4):
        job.all_reduce(group=row)
        if job.rank == 3 and turn == 2:
            job.stay_away()
        job.all_reduce(group=column)


@script(nranks=5)
def mismatch_in_a_subgroup(job: Job) -> None:
    """Which the world waits behind."""
    some = job.group(0, 1, 2)
    job.all_reduce()
    if job.rank == 1:
        job.dist.barrier(group=some)
    elif job.rank in (0, 2):
        job.all_reduce(group=some)
    job.dist.barrier()


@script()
def crossed_with_the_world(job: Job) -> None:
    pair = job.group(0, 1)
    job.all_reduce()
    if job.rank == 0:
        job.all_reduce(group=pair)
    job.dist.barrier()
    if job.rank == 1:
        job.all_reduce(group=pair)


@script(nranks=5, ring=20)
def wrapped_subgroup(job: Job) -> None:
    """One rank's ring no longer holds anything of a group in which others wait for it."""
    some = job.group(1, 2, 3)
    if job.rank in (1, 2, 3):
        job.all_reduce(group=some)
    pair = job.group(3, 4)
    if job.rank in (3, 4):
        for _ in range(60):
            job.all_reduce(group=pair)
    if job.rank == 3:
        job.stay_away()
    if job.rank in (1, 2):
        job.all_reduce(group=some)
