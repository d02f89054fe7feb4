"""Hangs made on purpose, for real: ranks on gloo that run a script and leave what their recorders held.

``python hanging.py FOLDER SCRIPT...`` runs scripts beside each other and writes, of
each rank and for each moment, ``FOLDER/SCRIPT/before|after/{json,pickle}/trace_rank_N[.json]``: before the
timeout, and after it, when the rank's script has ended or failed. A process of its own, so that the tests'
process keeps no group and no thread of it; it ends by itself, and takes all its ranks along.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

TIMEOUT_S = 2.0
BEFORE_S = 1.3
# How long a rank that others wait for stays away: until all of them have given up.
AWAY_S = 3.0
DEADLINE_S = 40.0
BESIDE = 5


class Job:
    """What a script has of its rank."""

    def __init__(self, rank: int, nranks: int, store: Any) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.nranks, self.store = rank, nranks, store
        self.torch, self.dist = torch, dist

    def tensor(self, count: int = 4, dtype: str = "float32") -> Any:
        return self.torch.ones(count, dtype=getattr(self.torch, dtype))

    def all_reduce(self, count: int = 4, dtype: str = "float32", group: Any = None, **options: Any) -> Any:
        return self.dist.all_reduce(self.tensor(count, dtype), group=group, **options)

    def group(self, *ranks: int) -> Any:
        """A new group; new_group's own timeout is half an hour, whatever that of the default group."""
        return self.dist.new_group(list(ranks), timeout=timedelta(seconds=TIMEOUT_S))

    def make_anew(self) -> None:
        """Destroy all groups and make the default group again."""
        self.dist.destroy_process_group()
        _make_world(self.rank, self.nranks, self.dist.PrefixStore("again", self.store))

    def kill(self) -> None:
        """End at once, without a dump."""
        os.kill(os.getpid(), signal.SIGKILL)

    def stay_away(self) -> None:
        """Do nothing until the others have given up; then leave the script."""
        time.sleep(AWAY_S)
        raise TimeoutError("stayed away")

    def stop(self) -> None:
        """Freeze the whole process, its threads too, so that it leaves no dump."""
        os.kill(os.getpid(), signal.SIGSTOP)


def _write_dumps(folder: Path, moment: str, rank: int) -> None:
    import torch

    c10d = torch._C._distributed_c10d
    # With stacks it would first import torch._inductor, which takes longer than the timeout.
    frames = "torch._inductor" in sys.modules
    taken_ns = time.time_ns()
    taken = {"json": c10d._dump_fr_trace_json(), "pickle": c10d._dump_fr_trace(includeStackTraces=frames)}
    for kind, content in taken.items():
        target = folder / moment / kind
        target.mkdir(parents=True, exist_ok=True)
        (target / f"trace_rank_{rank}{'.json' if kind == 'json' else ''}").write_bytes(content)
    (folder / moment / f"taken_{rank}").write_text(str(taken_ns))


def _make_world(rank: int, nranks: int, store: Any, timeout_s: float = TIMEOUT_S) -> None:
    import torch.distributed as dist

    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", rank=rank, world_size=nranks, store=store, timeout=timeout)


def _run_rank(script: Callable[[Job], None], rank: int, nranks: int, folder: Path, timeout_s: float) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), nranks)
    _make_world(rank, nranks, store, timeout_s)
    job = Job(rank, nranks, store)
    ready = dist.PrefixStore("ready", store)
    ready.add("ranks", 1)
    while ready.add("ranks", 0) < nranks:
        time.sleep(0.005)
    before = threading.Timer(BEFORE_S, _write_dumps, (folder, "before", rank))
    before.start()
    try:
        script(job)
        ended = "ended"
    except Exception as error:
        ended = f"{type(error).__name__}: {error}"
    _write_dumps(folder, "after", rank)
    (folder / f"ended_{rank}").write_text(f"{ended}\n")
    # Whoever leaves first closes its connections, which ends the others' waiting: not before the snapshot.
    before.join()


def _start_rank(
    script: Callable[[Job], None], rank: int, nranks: int, folder: Path, ring: int, timeout_s: float
) -> int:
    child = os.fork()
    if child:
        return child
    try:
        sys.stderr = open(folder / f"stderr_{rank}", "w")  # noqa: SIM115
        os.dup2(sys.stderr.fileno(), 2)
        os.environ["TORCH_FR_BUFFER_SIZE"] = str(ring)
        _run_rank(script, rank, nranks, folder, timeout_s)
    except BaseException as error:
        (folder / f"broken_{rank}").write_text(repr(error))
    finally:
        os._exit(0)


def _run_scripts(names: Sequence[str], folder: Path) -> None:
    """Run them, some beside each other; kill what has not ended at its deadline, as stopped ranks do not."""
    import torch.distributed

    if names[0] == "--frames":
        names = names[1:]
        import torch._inductor  # noqa: F401
    from hanging_group_scripts import SCRIPTS

    left = list(names)
    running: dict[int, tuple[str, float]] = {}
    ended: set[str] = set()
    try:
        while left or running:
            while left and len({name for name, _ in running.values()}) < BESIDE:
                name = left.pop(0)
                entry = SCRIPTS[name]
                (folder / name).mkdir()
                for rank in range(entry.nranks):
                    child = _start_rank(
                        entry.run, rank, entry.nranks, folder / name, entry.ring, entry.timeout_s
                    )
                    running[child] = (name, time.monotonic() + entry.deadline_s)
            for child, (name, deadline) in list(running.items()):
                if os.waitpid(child, os.WNOHANG)[0] or time.monotonic() > deadline:
                    _end(child)
                    del running[child]
                    ended.add(name)
            time.sleep(0.01)
    finally:
        for child in running:
            _end(child)


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def run_scripts(names: Sequence[str], folder: Path, frames: bool = False) -> Path:
    """Run scripts in a process of their own; with ``frames`` pickles hold stacks, which takes longer.

    Raises:
        AssertionError: it failed, or a rank failed outside its script.
        subprocess.TimeoutExpired: it did not end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("TORCH_", "GLOO_", "MASTER_"))
    }
    rounds = -(-len(names) // BESIDE)
    done = subprocess.run(
        [sys.executable, __file__, str(folder), *(["--frames"] if frames else []), *names],
        capture_output=True,
        text=True,
        env=environment,
        timeout=DEADLINE_S * rounds,
    )
    assert done.returncode == 0, done.stderr
    broken = [f"{path}: {path.read_text()}" for path in folder.glob("*/broken_*")]
    assert not broken, broken
    return folder


def dump_files(
    folder: Path, script: str, moment: str, kind: str, without: Sequence[int] = ()
) -> Iterator[Path]:
    """The dumps of one script at one moment, in one format, but for those of some ranks."""
    for path in sorted((folder / script / moment / kind).iterdir()):
        if int(path.stem.rpartition("_")[2]) not in without:
            yield path


if __name__ == "__main__":
    _run_scripts(sys.argv[2:], Path(sys.argv[1]))
