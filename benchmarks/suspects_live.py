"""How often `suspects` names rightly what is slow in emulated clusters, and how near `matrix` reads rates.

    python benchmarks/suspects_live.py [--trials 5] [--seed 0] [--factors 4,1.5] [--kinds healthy,...]

Needs root and iproute2: hosts are network namespaces of this machine (tests/emulated.py). Every trial has
another rate, another number of hosts and other ones that are slow. Right is only the exact set of suspects,
each with its kind, its ranks and its direction; "wrong" holds a name that is none of them, "part" names some
of two. Trials are `--quick` unless `--full` is given or the fault begins in the middle. The load of the
machine stands beside it all, because two cores carry every host.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from _bar import tell
from emulated import GOODPUT, Cluster, Job
from searching import acting_at, lines_of_passes

Name = tuple[str, tuple[int, ...], str]

OUTCOMES = ("right", "part", "wrong", "unclear", "none")
_LIMIT_S = 240.0
_RATES_MBIT = (100, 150, 200, 250, 300)
_QUICK_BAR_S, _FULL_BAR_S, _RATE_BAR = 15.0, 90.0, 0.03


@dataclass(frozen=True, slots=True)
class Trial:
    """A cluster, and what is slow in it.

    Attributes:
        hosts: how many.
        slow: distinct hosts in random order: the first of them are made slow.
        mbit: the rate of what is healthy.
        factor: by how much the others are slower.
    """

    hosts: int
    slow: tuple[int, ...]
    mbit: float
    factor: float

    @property
    def slow_mbit(self) -> float:
        """The rate of what is slow."""
        return self.mbit / self.factor

    @property
    def pair(self) -> tuple[int, int]:
        """The first two of ``slow``, the lower first."""
        one, other = sorted(self.slow[:2])
        return one, other


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of fault.

    Attributes:
        put_in: makes a cluster slow before anything starts.
        truth: what should be named.
        fewest_hosts, most_hosts: with fewer it cannot be told.
        options: of the command.
        meanwhile: what happens while it runs; it is given the run's folder.
        always_full: three passes are not enough to see it.
        switches: the hosts of each; one for all if empty.
    """

    put_in: Callable[[Cluster, Trial], None]
    truth: Callable[[Trial], set[Name]]
    fewest_hosts: int = 3
    most_hosts: int = 6
    options: Callable[[Trial], tuple[str, ...]] = lambda trial: ()
    meanwhile: Callable[[Cluster, Trial, Job, Path], Any] = lambda *_: nullcontext()
    always_full: bool = False
    switches: tuple[tuple[int, ...], ...] = ()


def _nothing(cluster: Cluster, trial: Trial) -> None:
    return None


def _host(cluster: Cluster, trial: Trial) -> None:
    cluster.set_host(trial.slow[0], trial.slow_mbit)


def _pair(cluster: Cluster, trial: Trial) -> None:
    cluster.set_pair(*trial.pair, trial.slow_mbit)


def _direction(cluster: Cluster, trial: Trial) -> None:
    cluster.set_direction(trial.slow[0], trial.slow[1], trial.slow_mbit)


def _uplink(cluster: Cluster, trial: Trial) -> None:
    cluster.set_uplink(0, trial.slow_mbit)


def _pair_and_host(cluster: Cluster, trial: Trial) -> None:
    _pair(cluster, trial)
    cluster.set_host(trial.slow[2], trial.slow_mbit)


def _degrading(cluster: Cluster, trial: Trial, job: Job, folder: Path) -> AbstractContextManager[None]:
    """The first host is slow when half of the lines of six passes over pairs and ranks are written."""
    return acting_at(lines_of_passes(3, trial.hosts), folder, lambda: _host(cluster, trial))


def _a_host(trial: Trial) -> set[Name]:
    return {("host", trial.slow[:1], "both")}


def _a_pair(trial: Trial) -> set[Name]:
    return {("link", trial.pair, "both")}


def _a_rank(trial: Trial) -> set[Name]:
    return {("rank", trial.slow[:1], "both")}


KINDS = {
    "healthy": Kind(_nothing, lambda trial: set()),
    "slow host": Kind(_host, _a_host),
    "slow pair": Kind(_pair, _a_pair),
    "one direction": Kind(
        _direction, lambda trial: {("link", trial.pair, f"{trial.slow[0]}>{trial.slow[1]}")}
    ),
    "pair and host": Kind(
        _pair_and_host,
        lambda trial: _a_pair(trial) | {("host", trial.slow[2:3], "both")},
        fewest_hosts=4,
    ),
    "slow compute": Kind(
        _nothing, _a_rank, options=lambda trial: ("--slow-rank", f"{trial.slow[0]}:{trial.factor}")
    ),
    "stopped and continued": Kind(
        _nothing,
        _a_rank,
        meanwhile=lambda cluster, trial, job, folder: job.slowed(trial.slow[0], trial.factor),
        always_full=True,
    ),
    "slow uplink": Kind(
        _uplink,
        lambda trial: {("link", (0, 2), "both")},
        fewest_hosts=4,
        most_hosts=4,
        switches=((0, 1), (2, 3)),
    ),
    "slow from the middle": Kind(_nothing, _a_host, meanwhile=_degrading, always_full=True),
}


def draw(kind: Kind, factor: float, chance: random.Random) -> Trial:
    """A cluster of three to six hosts."""
    hosts = chance.randint(kind.fewest_hosts, kind.most_hosts)
    slow = tuple(chance.sample(range(hosts), min(3, hosts)))
    return Trial(hosts, slow, chance.choice(_RATES_MBIT), factor)


@contextmanager
def _made(kind: Kind, trial: Trial) -> Iterator[Cluster]:
    """The cluster, up, with what is slow in it."""
    with Cluster(trial.hosts, trial.mbit, switches=kind.switches or None) as cluster:
        kind.put_in(cluster, trial)
        yield cluster


def attempt(kind: Kind, trial: Trial, full: bool) -> tuple[str, dict[str, Any], float]:
    """Bring the cluster up, search it; the outcome, the answer and the seconds of the command."""
    with tempfile.TemporaryDirectory() as scratch, _made(kind, trial) as cluster:
        folder = Path(scratch, "run")
        quick = () if full or kind.always_full else ("--quick",)
        command = (
            "-m",
            "ncclbench",
            "suspects",
            *quick,
            *kind.options(trial),
            "--json",
            "--out",
            str(folder),
        )
        began = time.monotonic()
        job = cluster.start(1, command)
        with kind.meanwhile(cluster, trial, job, folder):
            done = job.wait(_LIMIT_S)
        seconds = time.monotonic() - began
    if done.code not in (0, 1):
        raise SystemExit(f"suspects ended with {done.code}:\n{done.err}")
    return outcome(done.document, kind.truth(trial)), done.document, seconds


def outcome(answer: dict[str, Any], truth: set[Name]) -> str:
    """How an answer compares with the truth."""
    named = {(one["kind"], tuple(one["ranks"]), one["direction"]) for one in answer["suspects"]}
    if named - truth:
        return "wrong"
    if named == truth and answer["verdict"] != "unclear":
        return "right"
    if named:
        return "part"
    return "unclear" if answer["verdict"] == "unclear" else "none"


def rates(trial: Trial, kind: Kind) -> tuple[float, float]:
    """`matrix`: the furthest any link's bandwidth is from its goodput, as a fraction; and the seconds."""
    with tempfile.TemporaryDirectory() as scratch, _made(kind, trial) as cluster:
        began = time.monotonic()
        done = cluster.launch(1, ("-m", "ncclbench", "matrix", "--json", "--out", f"{scratch}/run"), _LIMIT_S)
        seconds = time.monotonic() - began
    furthest = 0.0
    for link in done.document["links"]:
        is_slow = kind is KINDS["slow host"] and trial.slow[0] in (link["src"], link["dst"])
        goodput_GBs = GOODPUT * (trial.slow_mbit if is_slow else trial.mbit) / 8000
        furthest = max(furthest, abs(link["bandwidth_GBs"] / goodput_GBs - 1))
    return furthest, seconds


def load() -> str:
    """Of the last minute, in processes that want to run."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", default="4,1.5")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--full", action="store_true", help="no --quick")
    parser.add_argument("--no-bars", action="store_true", help="leave out seconds and rates on four hosts")
    asked = parser.parse_args()
    right = trials = 0
    print(f"# {'fault':<24}{'factor':>7}" + "".join(f"{name:>9}" for name in OUTCOMES), flush=True)
    for name in asked.kinds.split(","):
        for factor in (1.0,) if name == "healthy" else map(float, asked.factors.split(",")):
            chance = random.Random(f"{asked.seed} {name} {factor}")
            counts: Counter[str] = Counter()
            for _ in range(asked.trials):
                trial = draw(KINDS[name], factor, chance)
                found, answer, _ = attempt(KINDS[name], trial, asked.full)
                counts[found] += 1
                trials += 1
                right += found == "right"
                if found != "right":
                    print(f"#   {trial}, {load()}: {found}: {answer['message']}", file=sys.stderr, flush=True)
            print(
                f"  {name:<24}{factor:>7g}"
                + "".join(f"{counts[one]:>9}" for one in OUTCOMES)
                + f"   {load()}",
                flush=True,
            )
    tell("suspects named", f"{right} of {trials} rightly", right == trials)
    if not asked.no_bars:
        bars()


def bars() -> None:
    """Seconds of a search on four hosts, and how near its links are to their rates."""
    four = Trial(4, (2, 0, 1), 200.0, 4.0)
    for words, full, bar_s in (("--quick", False, _QUICK_BAR_S), ("in full", True, _FULL_BAR_S)):
        _, _, seconds = attempt(KINDS["slow host"], four, full)
        tell(f"suspects {words}", f"{seconds:.1f} s, {load()}", seconds <= bar_s)
    for name in ("healthy", "slow host"):
        furthest, seconds = rates(four, KINDS[name])
        measured = f"every link within {furthest:.1%} of its goodput, {seconds:.1f} s, {load()}"
        tell(f"matrix, {name}", measured, furthest <= _RATE_BAR)


if __name__ == "__main__":
    main()
