"""The table of checks: one entry per thing that is tried. Adding one is one entry here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gpu_check.child import Ended
from gpu_check.judging import Verdict, judge_command, judge_direct
from gpu_check.place import Place

NCCLBENCH = (sys.executable, "-m", "ncclbench")
DIRECT = (sys.executable, "-m", "gpu_check.direct")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is tried.

    Attributes:
        name: for --only; what: in words.
        steps: commands, one after the other; their words are formatted with what ``command_of`` knows.
        judge: what came of the last step.
        ranks: numbers of ranks that make sense on one GPU; empty where it starts none.
        gpu: it means nothing without one.
        torch: the oldest that has it.
        timeout_s: of each step.
    """

    name: str
    what: str
    steps: tuple[tuple[str, ...], ...]
    judge: Callable[[Ended], Verdict]
    ranks: tuple[int, ...] = ()
    gpu: bool = False
    torch: tuple[int, int] = (2, 11)
    timeout_s: float = 240.0

    def why_not(self, place: Place) -> str | None:
        """Why it cannot be tried here, known beforehand."""
        if self.gpu and place.device != "cuda":
            return "means nothing without a GPU"
        if place.torch < self.torch:
            needed, here = (".".join(map(str, one)) for one in (self.torch, place.torch))
            return f"needs torch {needed}, this is {here}"
        return None


def _command(*words: str, backend: bool = True, out: bool = True) -> tuple[str, ...]:
    """ncclbench with what every command is given here."""
    more = ("--backends", "{backend}") if backend else ()
    return (*NCCLBENCH, *words, *more, "--json", *(("--out", "{out}/run") if out else ()))


def _ranked(*words: str, backend: bool = True, out: bool = True) -> tuple[str, ...]:
    """The same of a command that starts ranks."""
    return (*_command(*words, backend=backend, out=out), "--nproc-per-node", "{nranks}")


_SHORT = ("--epochs", "1", "-n", "4")
_judge = judge_command
# Whoever is named slow, and whatever deadlocks, is a finding about the machine: the command works.
_judge_finding = partial(judge_command, answers=(0, 1), found_bad=False)


def _sweep_of(backend: str, gpu: bool = True, torch: tuple[int, int] = (2, 11)) -> Check:
    modes = "isolated,back-to-back,graph" if gpu else "isolated,back-to-back"
    words = ("sweep", "--backends", backend, "--sizes", "8,1M,16M", "--modes", modes, *_SHORT)
    return Check(
        f"sweep-{backend}",
        f"all_reduce on {backend}: {modes}",
        (_ranked(*words, backend=False),),
        _judge,
        ranks=(1, 2, 4),
        gpu=gpu,
        torch=torch,
    )


def _drill(strategy: str, torch: tuple[int, int] = (2, 11), **more: bool) -> Check:
    words = ("drill", "--strategy", strategy, "--trials", "1")
    what = f"a rank is killed, and the others {strategy}"
    return Check(f"drill-{strategy}", what, (_ranked(*words),), _judge, ranks=(4,), torch=torch, **more)


def _preset(name: str, timeout_s: float) -> Check:
    words = ("sweep", "--preset", name)
    # Not accepted, or "wait", is a finding; a step that fails ends with 3.
    judge = _judge if name == "quick" else _judge_finding
    return Check(
        f"preset-{name}",
        f"the preset {name}",
        (_ranked(*words, backend=False),),
        judge,
        (2,),
        timeout_s=timeout_s,
    )


def _direct(name: str, what: str, *, gpu: bool = False, ranks: tuple[int, ...] = ()) -> Check:
    step = (*DIRECT, name, "--device", "{device}", "--backend", "{backend}", "--nranks", "{nranks}")
    return Check(name, what, (step,), judge_direct, gpu=gpu, ranks=ranks, timeout_s=180.0)


_ENTRIES = (
    _direct("counting", "counting GPUs and starting a supervisor initialise no CUDA"),
    _direct(
        "events",
        "events around a collective; what wait() leaves to synchronize",
        gpu=True,
    ),
    _direct("kernels", "fma, triad and gemm: right results, on torch's stream, for this GPU"),
    _direct("graphs", "captured, replayed, and reset before the group goes", gpu=True),
    _direct("nvml", "clocks, throttling, ECC, links and processes of the GPU that torch has", gpu=True),
    _direct("memory", "what a communicator takes, and gives back"),
    _direct("pool", "NCCL's allocator, registered with a communicator and deregistered", gpu=True),
    Check("list", "what is here", (_command("list", backend=False, out=False),), _judge),
    Check(
        "env",
        "every rank's environment",
        (_ranked("env", "--exit-zero", backend=False, out=False),),
        _judge,
        (1, 2),
    ),
    Check("plan", "what a sweep would do", (_command("plan", out=False),), _judge),
    _sweep_of("nccl2", torch=(2, 15)),
    _sweep_of("nccl-legacy"),
    _sweep_of("nccl-legacy-eager"),
    _sweep_of("nccl-lazy", torch=(2, 15)),
    _sweep_of("gloo", gpu=False),
    Check(
        "ops",
        "every collective",
        (_ranked("sweep", "--ops", "all", "--sizes", "64K", "--modes", "isolated", *_SHORT),),
        _judge,
        (2,),
    ),
    Check(
        "ops-graph",
        "every collective in a graph",
        (_ranked("sweep", "--ops", "all", "--sizes", "64K", "--modes", "graph", *_SHORT),),
        _judge,
        (2,),
        gpu=True,
    ),
    Check(
        "dtypes",
        "every element type and operator",
        (_ranked("sweep", "-d", "all", "-o", "all", "--sizes", "64K", "--modes", "isolated", *_SHORT),),
        _judge,
        (2,),
    ),
    Check(
        "forms",
        "issued with and without async_op, in place and not",
        (
            _ranked(
                *("sweep", "--ops", "all_reduce,all_gather,reduce_scatter,broadcast", "--sizes", "64K,4M"),
                *("--async", "no,yes", "--in-place", "no,yes", *_SHORT),
            ),
        ),
        _judge,
        (1, 2),
    ),
    Check(
        "topologies",
        "halves and the dimensions of a mesh",
        (_ranked("sweep", "--topologies", "halves,mesh:dp=2,tp=2", "--sizes", "64K", *_SHORT),),
        _judge,
        (4,),
    ),
    Check(
        "compare",
        "both process groups interleaved, compared, and the page of it",
        (
            _ranked("sweep", "--arms", "{arms}", "--sizes", "64K", "--epochs", "6", backend=False),
            (*NCCLBENCH, "report", "{out}/run", "--json"),
            (*NCCLBENCH, "compare", "{out}/run:{first}", "{out}/run:{second}", "--json"),
        ),
        _judge,
        (1, 2),
    ),
    Check(
        "settings",
        "arms with settings, which are read back",
        (_ranked("sweep", "--arms", "{settings}", "--sizes", "1M", *_SHORT, backend=False),),
        _judge,
        (2,),
    ),
    Check(
        "symm",
        "symmetric windows",
        (_ranked("sweep", "--arms", "nccl2; nccl2 symm", "--sizes", "1M", *_SHORT, backend=False),),
        _judge,
        (2,),
        True,
        (2, 15),
    ),
    Check(
        "calibrate",
        "equal arms",
        (_ranked("calibrate", "--sizes", "64K", "--exit-zero"),),
        _judge,
        (2,),
    ),
    Check("matrix", "every pair", (_ranked("matrix", "--quick", "--exit-zero"),), _judge, (2, 4)),
    Check("suspects", "who is slow", (_ranked("suspects", "--quick"),), _judge_finding, (2,)),
    *(_drill(name) for name in ("rebuild", "shrink", "restart", "abort")),
    *(_drill(name, (2, 15)) for name in ("reconfigure", "reconfigure+fastpath")),
    Check(
        "drill-contract",
        "membership goes wrong, on gloo",
        (_ranked("drill", "--contract", "reused-uuid", "--trials", "1", backend=False),),
        _judge_finding,
        (4,),
        torch=(2, 15),
    ),
    Check(
        "flight",
        "dumps of the flight recorder, written by real ranks and read",
        (
            (
                *DIRECT,
                "dump",
                "--backend",
                "{backend}",
                "--device",
                "{device}",
                "--nranks",
                "{nranks}",
                "--out",
                "{out}/dumps",
            ),
            (*NCCLBENCH, "flight", "{out}/dumps", "--json"),
        ),
        _judge,
        (2,),
    ),
    Check(
        "overlap",
        "communication beside each kernel",
        (_ranked("overlap", "--sizes", "1M", "--epochs", "1", "-n", "2"),),
        _judge,
        (2,),
    ),
    Check(
        "overlap-graph",
        "the same in a graph",
        (_ranked("overlap", "--sizes", "1M", "--modes", "graph", "--epochs", "1", "-n", "2"),),
        _judge,
        (2,),
        gpu=True,
    ),
    Check(
        "p2p",
        "ways, first messages, several peers",
        (_ranked("p2p", "--parts", "ways,first,peers", "--sizes", "8,1M", *_SHORT),),
        _judge,
        (2,),
    ),
    Check(
        "p2p-ordering",
        "orders of calling that deadlock",
        (_ranked("p2p", "--parts", "ordering", "--sizes", "8,16M"),),
        _judge_finding,
        (2,),
        timeout_s=900.0,
    ),
    Check(
        "p2p-semantics",
        "what torch does of what it documents",
        (_ranked("p2p", "--semantics"),),
        _judge_finding,
        (2,),
        timeout_s=900.0,
    ),
    Check(
        "transport",
        "weights from a trainer to generators",
        (_ranked("transport", "--weights", "16M", "--epochs", "1", "-n", "2"),),
        _judge,
        (2,),
    ),
    Check(
        "groups",
        "what communicators cost",
        (_ranked("groups", "--counts", "1,4", "--epochs", "1"),),
        _judge,
        (1, 2),
    ),
    Check(
        "groups-at-once",
        "collectives in several groups at once, and crossed",
        (_ranked("groups", "--concurrent", "--topology", "mesh:dp=2,tp=2", "--sizes", "64K", *_SHORT),),
        _judge_finding,
        (4,),
        timeout_s=900.0,
    ),
    _preset("quick", 900.0),
    _preset("training", 1800.0),
    _preset("acceptance", 3600.0),
    _preset("migration", 3600.0),
)
CHECKS = {check.name: check for check in _ENTRIES}
