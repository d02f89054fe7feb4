"""Commands hurt at random moments: right exit code, ended in time, nothing left behind, resumable.

    python benchmarks/random_signals.py [--trials 100] [--seed 0] [--how signal,kill,worker]
                                        [--what sweep,torchrun,matrix,drill]

Each trial starts a command in a session and with a folder for temporary files of its own, and hurts it at
a moment between its start and its usual end: SIGTERM, SIGINT or SIGHUP to the launcher ("signal"), SIGKILL
to it ("kill"), SIGKILL or SIGSTOP to one of its workers ("worker"). Then the exit code must be right, no
process that it started may be alive by the deadline, nothing may be in its temporary folder or in /dev/shm,
standard error may hold no traceback, what was measured must be readable, and of a sweep --resume must
measure the rest, no unit twice. Exit 1 where a trial is faulty; its folder is kept then.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
from _bar import tell

from ncclbench.errors import NcclbenchError
from ncclbench.store.reader import load_run

NCCLBENCH = (sys.executable, "-m", "ncclbench")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_SWEEP = ("sweep", "--sizes", "64,4K,64K", "--modes", "isolated", "-n", "60")
_TIMEOUT = ("--timeout", "5s")
_GLOO = ("--backends", "gloo")
_TWO = ("--nproc-per-node", "2")
_ARMS = ("--arms", "gloo; gloo GLOO_SOCKET_IFNAME=lo", "--epochs", "2")
# What is hurt; each gets --out DIR behind it.
COMMANDS: dict[str, tuple[str, ...]] = {
    "sweep": (*NCCLBENCH, *_SWEEP, *_GLOO, *_TWO, *_TIMEOUT),
    "teams": (*NCCLBENCH, *_SWEEP, *_TWO, *_ARMS, *_TIMEOUT),
    "torchrun": (*TORCHRUN, "-m", "ncclbench", *_SWEEP, *_GLOO, *_TIMEOUT),
    "matrix": (*NCCLBENCH, "matrix", "--backends", "gloo", "--nproc-per-node", "3", *_TIMEOUT),
    "suspects": (*NCCLBENCH, "suspects", "--quick", "--backends", "gloo", "--nproc-per-node", "3", *_TIMEOUT),
    "drill": (*NCCLBENCH, "drill", "--backends", "gloo", "--nproc-per-node", "3", "--trials", "1"),
}
_RESUMABLE = ("sweep", "teams", "torchrun")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HOW: dict[str, tuple[signal.Signals, ...]] = {
    "signal": ENDING,
    "kill": (signal.SIGKILL,),
    "worker": (signal.SIGKILL, signal.SIGSTOP),
}
_SHARED = Path("/dev/shm")  # noqa: S108  looked at, not written to
_MARK = "NCCLBENCH_RANDOM_SIGNALS"
# From the hurt to the end: what writes a report may still have to import what that takes; a stopped worker is
# given its --timeout, a drill waits for the one that it hurts itself, a store has 30 s to begin and a
# group that is asked what it can do 60 s to answer.
_END_S = 75.0
# For what watches over the end itself.
_GONE_S = 6.0
_LIMIT_S = 120.0


@dataclass(slots=True)
class Trial:
    """One command hurt once.

    Attributes:
        at_s: since its start.
        faults: what was not as it must be.
    """

    number: int
    what: str
    to: str
    number_sent: signal.Signals
    at_s: float
    code: int | None = None
    took_s: float = 0.0
    units: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        sent = f"{self.number_sent.name} to {self.to}"
        told = "; ".join(self.faults) or "fine"
        return (
            f"{self.number:4d} {self.what:9s} {sent:20s} at {self.at_s:5.2f} s: exit {self.code!s:>4s} "
            f"{self.took_s:5.2f} s after, {self.units:2d} units kept: {told}"
        )


class Scene:
    """One command and all that it starts, found by a mark in its environment."""

    def __init__(self, folder: Path, what: str) -> None:
        self.folder, self.out = folder, folder / "run"
        self.is_launched = what == "torchrun"
        self._mark = f"{folder}"
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True)
        self._shared = set(os.listdir(_SHARED))
        self._err = (folder / "err").open("w+")
        self.started_s = time.monotonic()
        self.process = subprocess.Popen(
            [*COMMANDS[what], "--out", str(self.out)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._err,
            env={**os.environ, _MARK: self._mark, "TMPDIR": str(self._temporary)},
            start_new_session=True,
            restore_signals=True,
            preexec_fn=_heed,
        )

    def living(self) -> list[psutil.Process]:
        """Processes that carry the mark and are no zombies."""
        wanted = f"{_MARK}={self._mark}".encode()
        found = []
        for process in psutil.process_iter():
            try:
                content = Path(f"/proc/{process.pid}/environ").read_bytes()
                if wanted in content.split(b"\0") and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (OSError, psutil.NoSuchProcess):
                continue
        return found

    def workers(self) -> list[psutil.Process]:
        """Those that measure: what the commands have forked, but for store, guards and keepers."""
        of_commands = [
            each for each in self.living() if "ncclbench" in _words(each) and each.pid != self.process.pid
        ]
        parents = {each.ppid() for each in of_commands} | {self.process.pid}
        # What torchrun starts are supervisors: one that is stopped before it has met the others holds them up
        # for as long as the slowest file server may, and is no worker.
        forkers = {each.pid for each in of_commands} | (set() if self.is_launched else {self.process.pid})
        leaves = [each for each in of_commands if each.pid not in parents and each.ppid() in forkers]
        return [each for each in leaves if not each.name().startswith("ncclbench-")]

    def left(self) -> list[str]:
        """What is still there of it, once it has had its time to go."""
        deadline = time.monotonic() + _GONE_S
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _left(self) -> list[str]:
        found = [f"process {each.pid} {each.name()}" for each in self.living()]
        found += [f"temporary {each}" for each in os.listdir(self._temporary) if not _is_torchs(each)]
        shared = set(os.listdir(_SHARED)) - self._shared
        return found + [f"{_SHARED}/{each}" for each in shared if "ncclbench" in each]

    def said(self) -> str:
        """Standard error."""
        self._err.seek(0)
        return self._err.read()

    def end(self) -> None:
        """Leave nothing of it, whatever it did."""
        for process in self.living():
            process.kill()
        self.process.wait()
        self._err.close()


def _heed() -> None:
    for number in ENDING:  # a shell's background job has them ignored
        signal.signal(number, signal.SIG_DFL)


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _is_torchs(name: str) -> bool:
    """torchrun's own folder of logs, which it leaves when it is killed."""
    return name.startswith(("torchelastic_", "none_", "torch_"))


def usual_s(what: str, folder: Path) -> float:
    """How long the command takes with nobody in its way."""
    scene = Scene(folder, what)
    try:
        scene.process.wait(_LIMIT_S)
        took_s = time.monotonic() - scene.started_s
        if scene.process.returncode != 0:
            raise SystemExit(f"{what} fails by itself: {scene.said()}")
        return took_s
    finally:
        scene.end()
        shutil.rmtree(folder)


def hurt(trial: Trial, folder: Path) -> None:
    """Do it and judge it."""
    scene = Scene(folder, trial.what)
    try:
        time.sleep(max(0.0, scene.started_s + trial.at_s - time.monotonic()))
        target = scene.process.pid
        if trial.to != "launcher":
            while not (workers := scene.workers()) and scene.process.poll() is None:
                time.sleep(0.02)
            if workers:
                target = workers[trial.number % len(workers)].pid
            else:
                trial.number_sent = signal.SIGCONT  # hurts nobody: there was none
        was_over = scene.process.poll() is not None
        sent_s = time.monotonic()
        with_nobody = was_over
        try:
            os.kill(target, trial.number_sent)
        except ProcessLookupError:
            with_nobody = True
        try:
            trial.code = scene.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            trial.faults.append(f"has not ended {_END_S:.0f} s later")
        trial.took_s = time.monotonic() - sent_s
        trial.faults += scene.left()
        said = scene.said()
    finally:
        scene.end()
    if was_over and trial.code != 0:
        trial.faults.append(f"failed by itself: {said.strip().splitlines()[-1:]}")
    elif trial.code is not None and not with_nobody:
        trial.faults += _wrong_end(trial, said)
    if trial.what in _RESUMABLE:
        trial.faults += _resumed(trial, scene.out)
    elif (scene.out / "run.json").exists():
        trial.faults += _readable(scene.out)


def _wrong_end(trial: Trial, said: str) -> list[str]:
    number = trial.number_sent
    right = {0, 128 + number, -number}
    if trial.to != "launcher":
        # The worker may just have been done; where it was not, its rank is named.
        right = {0} if number == signal.SIGCONT else {0, 3}
        if trial.what in ("torchrun", "drill"):
            # A drill's answer is bad where more ranks fail than it has hurt.
            right |= {1}
    elif trial.what == "torchrun":
        # torchrun's own: it dies of SIGINT with its own words, or passes on how its ranks ended.
        right |= {1}
    faults = []
    if trial.code not in right:
        last = said.strip().splitlines()[-1:]
        faults.append(f"exit {trial.code}, not one of {sorted(right)} ({''.join(last)[:200]})")
    if "Traceback" in said and trial.what != "torchrun" and "ncclbench/" in said:
        faults.append("a traceback")
    if "a fault in ncclbench" in said:
        faults.append("a fault in ncclbench")
    # What tries out a group before anything is measured is of no rank.
    if trial.code == 3 and trial.to == "worker" and "rank " not in said and "was asked" not in said:
        faults.append("no rank named")
    return faults


def _readable(out: Path) -> list[str]:
    if not (out / "samples.jsonl").exists() or not (out / "samples.jsonl").read_bytes():
        return []
    done = subprocess.run(
        [*NCCLBENCH, "report", str(out)], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    return [] if done.returncode == 0 else [f"report: exit {done.returncode}: {done.stderr[-200:]}"]


def _resumed(trial: Trial, out: Path) -> list[str]:
    """Faults of a sweep's folder: what was there is there still, the rest is measured, once."""
    if not (out / "run.json").exists():
        left = [each.name for each in out.iterdir()] if out.exists() else []
        return [f"no run.json, but {left}"] if set(left) - {".lock"} else []
    try:
        before = load_run(out)
    except NcclbenchError as error:
        return [f"not readable: {error}"]
    trial.units = sum(map(len, before.units.values()))
    command = [*NCCLBENCH, "sweep", "--resume", str(out), "--json"]
    if trial.what == "torchrun":
        command = [*TORCHRUN, "-m", "ncclbench", *command[len(NCCLBENCH) :]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode != 0:
        return [f"--resume: exit {done.returncode}: {done.stderr[-300:]}"]
    rows = msgspec.json.decode(done.stdout)["rows"]
    wanted = before.plan.epochs
    faults = [
        f"{row['nbytes']} B has {row['epochs']} epochs, {row['status']}"
        for row in rows
        if (row["status"], row["epochs"]) != ("ok", wanted)
    ]
    if len(rows) != len(before.plan.planned) * len(before.plan.arms):
        faults.append(f"{len(rows)} rows")
    counted: Counter[tuple[str, str, int, int]] = Counter()
    for line in (out / "samples.jsonl").read_bytes().splitlines():
        entry = msgspec.json.decode(line)
        if entry["type"] == "samples":
            counted[entry["case"], entry["arm"], entry["epoch"], entry["rank"]] += 1
    # An epoch that has come to some arms only is measured anew on all: they are compared within it.
    arms: Counter[tuple[str, int]] = Counter()
    arms.update((key[0], unit.epoch) for key, units in before.units.items() for unit in units)
    nwhole = len(before.plan.arms)
    twice = [key for key, times in counted.items() if times > 1 and arms[key[0], key[2]] == nwhole]
    if twice:
        faults.append(f"measured twice: {twice[0]}")
    stale = [each.name for each in out.iterdir() if each.name.endswith(".tmp")]
    return faults + [f"left in the folder: {each}" for each in stale]


def trials_of(
    count: int, seed: int, whats: Sequence[str], hows: Sequence[str], lasts: dict[str, float]
) -> list[Trial]:
    """What is hurt, how and when: the same for the same seed but for what commands take."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        what, how = whats[number % len(whats)], chance.choice(hows)
        sent = chance.choice(HOW[how])
        to = "worker" if how == "worker" else "launcher"
        found.append(Trial(number, what, to, sent, chance.random() * 1.02 * lasts[what]))
    return found


def main() -> int:
    """Print each trial as it ends, then a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how", default="signal,kill,worker")
    parser.add_argument("--what", default="sweep,torchrun,matrix,drill")
    options = parser.parse_args()
    whats, hows = options.what.split(","), options.how.split(",")
    root = Path(tempfile.mkdtemp(prefix="random-signals-"))
    lasts = {what: usual_s(what, root / f"usual-{what}") for what in whats}
    print(", ".join(f"{what} takes {last:.1f} s" for what, last in lasts.items()), flush=True)
    trials = trials_of(options.trials, options.seed, whats, hows, lasts)
    for trial in trials:
        folder = root / f"{trial.number}"
        hurt(trial, folder)
        print(trial, flush=True)
        if not trial.faults:
            shutil.rmtree(folder)
    table: Counter[tuple[str, str, str]] = Counter()
    bad: Counter[tuple[str, str, str]] = Counter()
    for trial in trials:
        key = (trial.what, trial.to, trial.number_sent.name)
        table[key] += 1
        bad[key] += bool(trial.faults)
    print(f"{'what':10s}{'to':10s}{'signal':10s}{'trials':>8s}{'faulty':>8s}")
    for key, count in sorted(table.items()):
        print(f"{key[0]:10s}{key[1]:10s}{key[2]:10s}{count:8d}{bad[key]:8d}")
    faulty = sum(bad.values())
    if faulty:
        print(f"what is faulty is kept in {root}")
    tell("signals", f"{faulty} of {len(trials)} trials faulty", not faulty)
    if not faulty:
        shutil.rmtree(root)
    return int(faulty > 0)


if __name__ == "__main__":
    sys.exit(main())
