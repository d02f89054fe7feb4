"""Reading a run folder: right numbers or one clear line, whatever the files hold."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ncclbench.errors import RequestError, brief
from ncclbench.plan.model import Plan
from ncclbench.store.drills import ContractOutcome, DrillTrial
from ncclbench.store.folder import LOCK_FILE, META_FILE, SAMPLES_FILE
from ncclbench.store.groups import GROUPS_LINES, GroupsCheck
from ncclbench.store.lines import ColdLine, Line, SamplesLine, StatusLine, StopLine, decode_line
from ncclbench.store.meta import read_meta, read_plan
from ncclbench.store.model import Run, Stop, Times, Unit
from ncclbench.store.overlaps import OVERLAP_LINES, OverlapTimes
from ncclbench.store.p2p import P2P_LINES, stranger
from ncclbench.store.printed import Printed
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest
from ncclbench.store.transfers import TRANSFER_LINES

# Bytes: a rank's millions of samples in one unit.
_LONGEST_LINE = 64 << 20
# Problems of one kind are counted beyond this many.
_PROBLEMS_SHOWN = 5

# Which lines a run of each kind can hold.
_LINES_OF: dict[str, tuple[type, ...]] = {
    "sweep": (SamplesLine, StatusLine, ColdLine, StopLine),
    "import": (Printed,),
    "matrix": (PairTest,),
    "suspects": (PairTest, RankTest, WaitTest, SubsetTest),
    "drill": (DrillTrial, ContractOutcome),
    "overlap": OVERLAP_LINES,
    "p2p": P2P_LINES,
    "transport": TRANSFER_LINES,
    "groups": GROUPS_LINES,
}

# The problem of a run whose run.json still says "running".
ENDED_SILENTLY = (
    f"its command ended without a word (killed, or disk full?): {META_FILE} says it runs, but none writes"
)

# Of fcntl(2) on Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = "hhqqi"


def load_run(path: Path) -> Run:
    """The run in a folder, given as the folder or as its run.json.

    What a crash leaves behind (a torn last line, units that lack a rank) is dropped and told in
    ``problems``. A unit measured again by a later attempt counts as that attempt measured it.

    Raises:
        RequestError: not there, not a run, from a newer ncclbench, or damaged: with file and line.
    """
    meta_path = path if path.name == META_FILE else path / META_FILE
    if not os.path.isfile(meta_path):  # unlike Path's, it never raises
        where = f"there is no {META_FILE} in it" if os.path.exists(path) else "no such file or folder"
        raise RequestError(f"{path} is not a run: {where}")
    meta = read_meta(meta_path)
    plan = read_plan(meta, meta_path)
    run = Run(folder=meta_path.parent, meta=meta, plan=plan)
    samples_path = meta_path.with_name(SAMPLES_FILE)
    if os.path.lexists(samples_path):
        _Collector(run).read(samples_path)
    if meta.get("status") == "running" and _is_unlocked(run.folder):
        run.problems.append(ENDED_SILENTLY)
    return run


def _is_unlocked(folder: Path) -> bool:
    """Whether nobody writes to a run folder. False where that cannot be told, as of a copy without its lock.

    The lock is asked after and not taken, which would keep out a command that begins just now. A process that
    holds it itself would lose it here: it reads its run only once the end stands in run.json.
    """
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(lock)


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[int, Line]]:
    """Line numbers, from 1, and the decoded lines."""
    if not os.path.isfile(path):  # opening a pipe would wait for who writes to it
        raise RequestError(f"{path} is no file: name the folder that ncclbench wrote, or a copy of it")
    try:
        with path.open("rb") as file:
            for number, text in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                if len(text) == _LONGEST_LINE:
                    raise RequestError(f"{path} line {number} is damaged: no line of a run is so long")
                if not text.endswith(b"\n"):
                    problems.append(f"{path.name}: the last line is torn and was dropped")
                    return
                try:
                    yield number, decode_line(text)
                except (ValueError, RecursionError) as error:
                    said = brief(error)
                    raise RequestError(f"{path} line {number} is damaged: {said}") from None
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None


class _Collector:
    """Puts lines together to units as their last rank comes in."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._cases = {entry.case.key for entry in run.plan.cases}
        self._arms = {arm.id for arm in run.plan.arms}
        self._open: dict[tuple[str, str, int, int], dict[int, SamplesLine]] = {}
        self._units: dict[tuple[str, str, int], Unit] = {}
        self._strangers: list[str] = []
        self._groups = GroupsCheck(run.plan.nranks, self._arms)
        self._kind = str(run.meta.get("kind", "sweep"))
        # Iterations by rank, of each pass and operation of the free-running loop.
        self._loops: dict[tuple[int, str], dict[int, int]] = {}

    def read(self, path: Path) -> None:
        """Fill the run from samples.jsonl."""
        for number, line in _lines(path, self._run.problems):
            try:
                self._take(line)
            except ValueError as error:
                raise RequestError(f"{path} line {number} is damaged: {error}") from None
        for unit in sorted(self._units.values(), key=lambda unit: unit.epoch):
            self._run.units.setdefault((unit.case, unit.arm), []).append(unit)
        self._drop_loops()
        self._report(self._strangers)
        self._report(self._incomplete(self._run.plan))

    def _take(self, line: Line) -> None:
        run = self._run
        if not isinstance(line, _LINES_OF[self._kind]):
            raise ValueError(f"a line of type {line.__struct_config__.tag!r} in a run of kind {self._kind!r}")
        # First, for a run of thousands of ranks has millions of them.
        if isinstance(line, SamplesLine) and line.arm in self._arms and line.case in self._cases:
            # Measured after it had failed, by a later attempt: the later word counts.
            run.statuses.pop((line.case, line.arm), None)
            self._take_samples(line)
        elif isinstance(line, PairTest | RankTest | WaitTest | SubsetTest):
            self._take_probe(line)
        elif isinstance(line, DrillTrial):
            run.trials.append(line)
        elif isinstance(line, ContractOutcome):
            run.contract.append(line)
        elif isinstance(line, (*OVERLAP_LINES, *P2P_LINES, *TRANSFER_LINES, *GROUPS_LINES)):
            if isinstance(line, OverlapTimes) and line.nranks != run.plan.nranks:
                raise ValueError(f"it has times of {line.nranks} ranks of {run.plan.nranks}")
            if isinstance(line, P2P_LINES) and (strange := stranger(line, run.plan.nranks)):
                raise ValueError(strange)
            checks = self._groups if self._kind == "groups" else None
            if checks and isinstance(line, GROUPS_LINES) and (strange := checks.refusal(line)):
                raise ValueError(strange)
            run.results.append(line)
        elif isinstance(line, StopLine):
            if line.case in self._cases:
                run.stops[line.case] = Stop(line.epochs, line.why, line.half_width)
            else:
                self._strangers.append(f"{line.case} is not in the plan: its line was left out")
        elif line.arm not in self._arms or (
            not isinstance(line, ColdLine | Printed) and line.case not in self._cases
        ):
            what = f"arm {line.arm}" if isinstance(line, ColdLine | Printed) else f"{line.case} on {line.arm}"
            self._strangers.append(f"{what} is not in the plan: its line was left out")
        elif isinstance(line, Printed):
            run.printed.append(line)
        elif isinstance(line, StatusLine):
            run.statuses[line.case, line.arm] = (line.status, line.reason)
        elif isinstance(line, ColdLine):
            run.cold.append(
                {
                    "arm": line.arm,
                    "topology": line.topology,
                    "epoch": line.epoch,
                    "attempt": line.attempt,
                    "rank": line.rank,
                    "init_us": line.init_us,
                    "first_op_us": line.first_op_us,
                }
            )

    def _take_probe(self, probe: Probe) -> None:
        nranks = self._run.plan.nranks
        highest = max(probe.members)
        if highest >= nranks:
            raise ValueError(f"rank {highest} of {nranks}")
        if isinstance(probe, WaitTest):
            iterations = self._loops.setdefault((probe.turn, probe.op), {})
            iterations[probe.rank] = len(probe.waits_us)
            first = next(iter(iterations))
            if iterations[first] != len(probe.waits_us):
                raise ValueError(
                    f"rank {probe.rank} has {len(probe.waits_us)} iterations of the free-running loop, "
                    f"rank {first} {iterations[first]}"
                )
        self._run.probes.append(probe)

    def _drop_loops(self) -> None:
        """Leave out free-running loops that lack a rank: who waited least of some tells nothing."""
        nranks = self._run.plan.nranks
        torn = {loop: len(ranks) for loop, ranks in self._loops.items() if len(ranks) < nranks}
        if not torn:
            return
        self._run.probes = [
            probe
            for probe in self._run.probes
            if not (isinstance(probe, WaitTest) and (probe.turn, probe.op) in torn)
        ]
        self._report(
            [
                f"{op} in the free-running loop, pass {turn}: {ranks} of {nranks} ranks, so it was dropped"
                for (turn, op), ranks in torn.items()
            ]
        )

    def _take_samples(self, line: SamplesLine) -> None:
        nranks = self._run.plan.nranks
        if line.rank >= nranks:
            raise ValueError(f"rank {line.rank} of {nranks}")
        key = (line.case, line.arm, line.epoch, line.attempt)
        ranks = self._open.setdefault(key, {})
        ranks[line.rank] = line
        if len(ranks) == nranks:
            del self._open[key]
            unit = _assemble([ranks[rank] for rank in range(nranks)])
            known = self._units.get(key[:3])
            if known is None or known.attempt <= unit.attempt:
                self._units[key[:3]] = unit

    def _incomplete(self, plan: Plan) -> list[str]:
        """Units that were never completed, not even by another attempt."""
        return [
            f"{case} on {arm}, epoch {epoch}: {len(ranks)} of {plan.nranks} ranks, so it was dropped"
            for (case, arm, epoch, _), ranks in self._open.items()
            if (case, arm, epoch) not in self._units
        ]

    def _report(self, problems: list[str]) -> None:
        more = len(problems) - _PROBLEMS_SHOWN
        self._run.problems += problems[:_PROBLEMS_SHOWN]
        if more > 0:
            self._run.problems.append(f"and {more} more like that")


def _assemble(lines: list[SamplesLine]) -> Unit:
    """The unit of all its ranks' lines, in order of rank.

    Raises:
        ValueError: the ranks do not tell of the same thing.
    """
    first = lines[0]
    for line in lines:
        if _common(line) != _common(first):
            raise ValueError(f"ranks 0 and {line.rank} of its unit differ in k, visits, clock or check")
    wrong = tuple(line.wrong for line in lines if line.wrong is not None)
    return Unit(
        case=first.case,
        arm=first.arm,
        epoch=first.epoch,
        attempt=first.attempt,
        k=first.k,
        start_us=_stacked([line.start_us for line in lines]),
        launch_us=_stacked([line.launch_us for line in lines]),
        device_us=None if first.device_us is None else _stacked([line.device_us or [] for line in lines]),
        total_us=_stacked([line.total_us for line in lines]),
        visits=tuple(first.visits),
        turns=tuple(first.turns),
        wrong=wrong or None,
        delay_us=None if first.delay_us is None else tuple(line.delay_us or 0.0 for line in lines),
        health=tuple(line.health for line in lines) if any(line.health for line in lines) else None,
    )


def _common(line: SamplesLine) -> tuple[int, list[int], list[int], bool, bool, bool]:
    """What all ranks of a unit have in common."""
    return (
        line.k,
        line.visits,
        line.turns,
        line.device_us is None,
        line.wrong is None,
        line.delay_us is None,
    )


def _stacked(rows: list[list[float]]) -> Times:
    return np.array(rows, dtype=np.float64)
