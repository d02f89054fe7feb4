"""What one entry of COLLECTIVES says: sizes, call, expected result, busbw factor.

An entry describes its result as plain numbers (``Segment``), so that the check on the data is
independent of the library under test and needs no torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

# What a call hands back: nothing (the operation is done, or ordered on the stream), or the Works
# that the loop waits for.
Works = Sequence[Any] | None
Call = Callable[[], Works]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one operation on one rank, in elements.

    Attributes:
        count: the count given to the library, as nccl-tests prints it.
        nelements: the larger of send and receive elements over all ranks: what ``nbytes`` counts.
        send: elements this rank sends from.
        recv: elements this rank receives into; 0 where the operation works in the send buffer.
        send_splits: elements per destination rank, for uneven operations.
        recv_splits: elements per source rank, likewise.
    """

    count: int
    nelements: int
    send: int
    recv: int
    send_splits: tuple[int, ...] = ()
    recv_splits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of elements of the result and where it comes from.

    Attributes:
        offset: first element in the result buffer.
        length: elements.
        source: the rank whose input it copies, or None for the reduction over all ranks' inputs.
        source_offset: first element in the input(s).
    """

    offset: int
    length: int
    source: int | None
    source_offset: int


class Binding(Protocol):
    """What an entry's ``bind`` gets: one slot of buffers and the group to run on.

    ``send`` and ``recv`` are one-dimensional tensors of ``layout.send`` and ``layout.recv`` elements;
    where the operation runs in place the entry's own rule says how they overlap.
    """

    send: torch.Tensor
    recv: torch.Tensor
    layout: Layout
    group: Any
    rank: int
    nranks: int
    root: int
    redop: Any
    async_op: bool
    in_place: bool
    dist: Any


@dataclass(frozen=True)
class Collective:
    """One collective operation.

    Attributes:
        name: as typed after ``--ops``.
        description: one line for ``ncclbench list``.
        busbw_factor: number of ranks to busbw/algbw; source: nccl-tests, src/*.cu GetBw.
        synchronising: nobody leaves before everybody has come, so waiting times tell who was late.
        layout: (elements asked for, rank, nranks, seed) to this rank's sizes, or a reason why there are none.
        expected: (layout, rank, nranks, root) to the segments of this rank's result; elements that no
            segment names are undefined after the operation.
        bind: prepares everything outside the clock and returns the call that is timed.
        reduces: takes a reduction operator.
        rooted: takes a root.
        in_place_forms: the forms the torch API has, the natural one first.
        result_in_send: the result is in the send buffer (all_reduce), not in the receive buffer.
        in_place_alias: for in-place forms of two-buffer operations: which part of which buffer is the
            other one, as (small, rank's slot of large): "send_in_recv" or "recv_in_send".
        has_data: moves data; without it there is one row whatever the sizes.
        least_ranks: fewest ranks it means something on.
        asynchronous: has an async form.
        totals: (elements asked for, nranks) to what ``layout`` says without the splits, where these are dear.
    """

    name: str
    description: str
    busbw_factor: Callable[[int], float]
    synchronising: bool
    layout: Callable[[int, int, int, int], Layout | str]
    expected: Callable[[Layout, int, int, int], list[Segment]]
    bind: Callable[[Binding], Call]
    reduces: bool = False
    rooted: bool = False
    in_place_forms: tuple[bool, ...] = (False,)
    result_in_send: bool = False
    in_place_alias: str | None = None
    has_data: bool = True
    least_ranks: int = 1
    asynchronous: bool = True
    totals: Callable[[int, int], Layout | str] | None = None

    def sizes(self, nelements: int, nranks: int, seed: int) -> Layout | str:
        """Counts and totals, the same on all ranks, for whoever needs no splits; or why there are none."""
        if self.totals is not None:
            return self.totals(nelements, nranks)
        return self.layout(nelements, 0, nranks, seed)


def all_reduce_factor(nranks: int) -> float:
    """2(n-1)/n: each element crosses the bus twice, once reduced and once spread."""
    return 2 * (nranks - 1) / nranks


def gather_factor(nranks: int) -> float:
    """(n-1)/n: of the n parts, a rank's own never crosses the bus."""
    return (nranks - 1) / nranks


def unit_factor(nranks: int) -> float:
    """1: every byte crosses the slowest link once."""
    return 1.0


def bound(run: Callable[..., Any], *arguments: Any, async_op: bool, **keywords: Any) -> Call:
    """A torch collective with its arguments, as the loop calls it.

    The synchronous form has no frame of ours around torch's own: a thread that has just been woken runs
    on cold caches, where even a return costs microseconds.
    """
    if not async_op:
        return partial(run, *arguments, async_op=False, **keywords)
    return lambda: (run(*arguments, async_op=True, **keywords),)
