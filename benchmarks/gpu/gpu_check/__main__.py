"""Try everything that needs a GPU on this machine, and say in one table what works, is wrong, or is not here.

    PYTHONPATH=benchmarks/gpu python -m gpu_check [--device cuda|cpu] [--only NAME,NAME] [--out FILE]

Exit code 0: nothing is wrong. 1: something is. 2: the request was.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from gpu_check import answer, child
from gpu_check.answer import Line
from gpu_check.checks import CHECKS, DIRECT, Check
from gpu_check.judging import UNAVAILABLE, WORKS, WRONG, Verdict, judge_command, judge_direct
from gpu_check.machine import describe, place_of
from gpu_check.place import Place
from ncclbench.units import count_text

_ROOT = Path(__file__).resolve().parent.parent.parent.parent


def main(arguments: Sequence[str] | None = None, checks: Mapping[str, Check] = CHECKS) -> int:
    """Run the checks asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: a GPU where there is one")
    parser.add_argument("--list", action="store_true", help="show the checks and run none")
    parser.add_argument("--only", metavar="NAME,NAME", help="run these alone")
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-check.json"), help="file to send back, .json or .txt"
    )
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="of each command")
    asked = parser.parse_args(arguments)
    chosen = [name.strip() for name in asked.only.split(",")] if asked.only else list(checks)
    unknown = [name for name in chosen if name not in checks]
    if unknown:
        parser.error(f"no check is called {unknown[0]}: --list shows them")
    if asked.time_limit is not None and not asked.time_limit > 0:
        parser.error("--time-limit must be more than 0 seconds")
    if not asked.out.parent.is_dir():
        parser.error(f"--out: there is no folder {asked.out.parent}")
    if asked.list:
        width = max(map(len, chosen))
        print("\n".join(f"{name:<{width}}  {checks[name].what}" for name in chosen))
        return 0
    try:  # not after the checks, which take long on a machine that is lent
        with asked.out.open("a", encoding="utf-8"):
            pass
    except (OSError, ValueError) as error:
        parser.error(f"--out: {asked.out} cannot be written ({getattr(error, 'strerror', error)})")
    signal.signal(signal.SIGTERM, _interrupted)
    place, told = place_of(asked.device)
    words = _words(place)
    print(words)
    lines: list[Line] = []
    width = max(len(f"{name} x{max(checks[name].ranks, default=0)}") for name in chosen)
    try:
        for line in _lines([checks[name] for name in chosen], place, asked.time_limit):
            lines.append(line)
            print(answer.text_of(line, width), flush=True)
    except KeyboardInterrupt:
        print("interrupted; what is known by now is written", file=sys.stderr)
        lines.append(Line("(interrupted)", WRONG, 0.0, "the checks were ended from outside"))
    try:
        answer.write(asked.out, describe(told), lines, words)
    except OSError as error:
        print(f"gpu_check: error: {asked.out} could not be written ({error.strerror})", file=sys.stderr)
        return 3
    print(f"{answer.summary(lines)}; {asked.out} can be sent back: no name of host, home or GPU is in it")
    return int(any(line.verdict == WRONG for line in lines))


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _words(place: Place) -> str:
    torch, nccl = (".".join(map(str, each or ("none",))) for each in (place.torch, place.nccl))
    if place.device == "cpu":
        return f"on the CPU: torch {torch}; what needs a GPU is not tried"
    sharing = "ranks may share one" if place.can_share else "one rank each"
    return f"{count_text(place.gpus, 'GPU')}: torch {torch}, NCCL {nccl}, {sharing}"


def _lines(checks: Sequence[Check], place: Place, limit_s: float | None) -> Iterator[Line]:
    for check in checks:
        reason = check.why_not(place)
        if reason is not None:
            yield Line(check.name, UNAVAILABLE, 0.0, reason)
            continue
        for nranks, why in place.ranks(check.ranks) if check.ranks else [(1, None)]:
            name = f"{check.name} x{nranks}" if check.ranks else check.name
            if why is not None:
                yield Line(name, UNAVAILABLE, 0.0, why)
            else:
                yield _tried(check, name, place, nranks, limit_s)


def _tried(check: Check, name: str, place: Place, nranks: int, limit_s: float | None) -> Line:
    began = time.monotonic()
    command, ended, verdict = "", None, Verdict(WRONG, "nothing ran")
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        for number, step in enumerate(check.steps):
            words = command_of(step, place, nranks, folder)
            command = shlex.join(words[2:]).replace(folder, "OUT")
            # The checkout's own code, and this package.
            paths = {"PYTHONPATH": f"{_ROOT}:{_ROOT / 'benchmarks' / 'gpu'}", "NO_COLOR": "1"}
            ended = child.run(words, Path(folder), limit_s or check.timeout_s, paths)
            judge = check.judge
            if number < len(check.steps) - 1:
                judge = judge_direct if step[: len(DIRECT)] == DIRECT else judge_command
            verdict = judge(ended)
            if verdict.word != WORKS:
                break
    texts = (answer.tail(ended.out), answer.tail(ended.err)) if ended and verdict.word == WRONG else ("", "")
    return Line(
        name, verdict.word, time.monotonic() - began, verdict.reason.replace(folder, "OUT"), command, *texts
    )


def command_of(step: Sequence[str], place: Place, nranks: int, folder: str) -> list[str]:
    """A step's words with what this place says, and leave to share a GPU where ranks have to."""
    first, second = ("gloo", "gloo#2") if place.device == "cpu" else _both(place)
    arms = "gloo; gloo" if place.device == "cpu" else f"{first}; {second}"
    settings = "gloo; gloo GLOO_SOCKET_IFNAME=lo"
    if place.device == "cuda":
        usual = place.default_backend
        settings = f"{usual}; {usual} max_ctas=4; {usual} NCCL_ALGO=Ring; {usual} NCCL_PROTO=Simple"
    known = {
        "out": folder,
        "device": place.device,
        "backend": place.default_backend,
        "nranks": nranks,
        "arms": arms,
        "first": first,
        "second": second,
        "settings": settings,
    }
    words = [word.format_map(known) for word in step]
    if place.shares(nranks) and "--nproc-per-node" in words:
        words.append("--share-gpu")
    return words


def _both(place: Place) -> tuple[str, str]:
    """Two process groups to hold against each other."""
    return ("nccl2", "nccl-legacy") if place.torch >= (2, 15) else ("nccl-legacy", "nccl-legacy-eager")


if __name__ == "__main__":
    sys.exit(main())
