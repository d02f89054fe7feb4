"""In which order arms are visited: balanced, random, the same on every rank, and recorded.

Within an epoch every arm is visited once in every row of a Latin square, so that no arm is always
first; for two arms the rows are the pair AB, BA. Which square, and in which order its rows come, is
drawn from the run's seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

# More visits than this per arm and epoch are made only where it is known that they pay.
MAX_VISITS = 4


def _generator(seed: int, *path: object) -> random.Random:
    return random.Random("/".join(str(part) for part in (seed, *path)))


def creation_order(narms: int, seed: int, epoch: int) -> list[int]:
    """The order in which an epoch's groups are made, as arm indices."""
    order = list(range(narms))
    _generator(seed, "groups", epoch).shuffle(order)
    return order


def usual_visits(narms: int) -> int:
    """Visits to each arm in an epoch where nothing is known of the case."""
    return 1 if narms == 1 else min(narms, MAX_VISITS)


def visit_step(narms: int) -> int:
    """Visits come in multiples of this where they are free: whole squares, and halves to compare."""
    return max(2, min(narms, MAX_VISITS))


def visit_order(narms: int, seed: int, epoch: int, case_key: str, visits: int) -> list[int]:
    """The arm indices in the order of one case's blocks within an epoch, each ``visits`` times.

    Over ``narms`` successive epochs every arm begins equally often: being first has an effect of its own
    (warmer, or just after somebody's write), and a few epochs of pure chance would not even it out.
    """
    names = list(range(narms))
    _generator(seed, "visits", epoch // narms, case_key).shuffle(names)
    first = epoch % narms
    return [names[(first + row + step) % narms] for row in range(visits) for step in range(narms)]


def split_iterations(iters: int, visits: int) -> list[int]:
    """Iterations of each visit, at least one, as even as can be."""
    share, rest = divmod(iters, visits)
    return [max(1, share + (index < rest)) for index in range(visits)]


def part_orders(names: Sequence[str], seed: int, epoch: int, case_key: str, repetitions: int) -> list[str]:
    """The order of parts that are compared within each repetition, one repetition after the other.

    Drawn anew for every second repetition, which the one after it goes through backwards: over the two
    every part has the same mean place, and what drifts steadily falls on all alike.
    """
    generator = _generator(seed, "parts", epoch, case_key)
    orders: list[str] = []
    for _ in range(0, repetitions, 2):
        order = generator.sample(list(names), len(names))
        orders += [*order, *reversed(order)]
    return orders[: repetitions * len(names)]
