"""Every bar that ncclbench holds itself to, measured anew: one command, one table.

    python benchmarks/bars.py [--quick] [--only WORD,...] [--list] [--markdown FILE]

Runs the scripts of this folder one after the other, each with a deadline, shows what they print, and ends
with a table of bar and figure. As root, since emulated clusters need it, and on a machine that does nothing
else: two cores carry everything, and the load as each begins is shown. `--quick` takes few
trials, so that all is seen to work in about ten minutes; its rates prove nothing. Ends with 1 if a bar is
missed, and with 3 if one was not measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from _bar import Told, heard

HERE = Path(__file__).resolve().parent
# For the end of a command that was killed, and for its last words.
READ_S = 5.0
WORDS = {True: "met", False: "MISSED", None: "not shown"}


@dataclass(frozen=True, slots=True)
class Bench:
    """One command, and the bars that it tells of.

    Attributes:
        words: of the command, after Python's.
        bars: what is asked, by the names that the command uses.
        quick: words in place of ``words`` that take a few seconds.
        limit_s: it is ended then.
        as_root: it cannot run otherwise.
    """

    words: tuple[str, ...]
    bars: dict[str, str]
    quick: tuple[str, ...] = ()
    limit_s: float = 1800.0
    as_root: bool = False


@dataclass(slots=True)
class Result:
    """What a command has told, and how it ended."""

    told: list[Told] = field(default_factory=list)
    ended: str = ""


def script(name: str, *words: str) -> tuple[str, ...]:
    """The words that run a script of this folder."""
    return (str(HERE / name), *words)


def tests(*words: str) -> tuple[str, ...]:
    """The words that run tests which are bars; they tell by how they end."""
    return ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *words)


_OVERHEAD = "interval of the ratio to a bare loop inside [0.98, 1.02]"
_SLOWDOWN = "10 % slower found in 45 of 50 trials of 20 s"

BENCHES = (
    Bench(
        script("overhead.py", "--epochs", "250"),
        {"overhead 8": _OVERHEAD, "overhead 64K": _OVERHEAD, "overhead 4M": _OVERHEAD},
        quick=script("overhead.py", "--epochs", "12"),
    ),
    Bench(
        script("commands.py", "--rounds", "5"),
        {
            "help": "ncclbench --help in 150 ms",
            "sweep": "48 rows of all_reduce and broadcast in 7.4 s",
            "page size": "page of a usual run under 2.2 MB",
        },
        quick=script("commands.py", "--rounds", "1"),
    ),
    Bench(
        script("drawn.py"),
        {"drawn: a run": "drawn in 1.6 s", "drawn: two sides": "drawn in 1.6 s"},
        quick=script("drawn.py", "--rounds", "1"),
    ),
    Bench(script("read_million.py"), {"a million samples": "read, compared and reported in 10 s and 1 GB"}),
    Bench(
        script("compare_runs.py"),
        {
            "compare": "2 x 500,000 samples in 5 s and 1 GB, torch not imported",
            "compare --out --csv": "the same with page and table",
        },
    ),
    Bench(
        script("false_verdicts.py"),
        {"a/a": "at most 15 false verdicts in 200"},
        quick=script("false_verdicts.py", "--runs", "1", "--seconds", "1"),
        limit_s=3600.0,
    ),
    Bench(
        script("found.py"),
        {"a/b 64K": _SLOWDOWN, "a/b 4M": _SLOWDOWN},
        quick=script("found.py", "--trials", "2", "--seconds", "4"),
        limit_s=4 * 3600.0,
    ),
    Bench(
        tests("tests/test_compare_paired.py", "-k", "a_margin_apart"),
        {"same at the margin": '"same" in at most 5 % of 2,000 that are a margin apart'},
    ),
    Bench(
        script("intervals_hold.py"),
        {"coverage": "95 % intervals hold the truth in 93 % of 4,000 trials of each law"},
        quick=script("intervals_hold.py", "--trials", "200", "--epochs", "32"),
    ),
    Bench(
        script("replay.py"),
        {
            "replayed 1.5x": "named rightly in 98 %",
            "replayed 4x": "named rightly in 98 %",
            "replayed healthy": "nobody named",
        },
        quick=script("replay.py", "--trials", "20"),
    ),
    Bench(
        script("suspects_live.py"),
        {
            "suspects named": "every fault and every healthy cluster named rightly",
            "suspects --quick": "15 s on 4 hosts",
            "suspects in full": "90 s on 4 hosts",
            "matrix, healthy": "every link within 3 % of its rate",
            "matrix, slow host": "every link within 3 % of its rate",
        },
        quick=script(
            "suspects_live.py", "--trials", "1", "--factors", "4", "--kinds", "healthy,slow host,slow compute"
        ),
        limit_s=3 * 3600.0,
        as_root=True,
    ),
    Bench(
        script("recovery.py"),
        {
            "recovery: reconfigure": "first good collective at n-1 within 100 ms of a kill",
            "recovery: rebuild": "first good collective at n-1 within 100 ms of a kill",
        },
        quick=script("recovery.py", "--trials", "2"),
    ),
    Bench(
        tests("tests/test_drill_leaks.py", "--drills", "100"),
        {"drills": "100 in a row leave nothing"},
        quick=tests("tests/test_drill_leaks.py", "--drills", "5"),
    ),
    Bench(
        script("beside.py"),
        {
            "overlap": "0.9 or more hidden, under 0.1 one after the other, in 10 of 10",
            "weights": "one-sided copies in half the time of broadcast",
        },
        quick=script("beside.py", "--runs", "1", "--weights", "64M"),
        as_root=True,
    ),
    Bench(
        script("scale.py"),
        {
            "plan": "16,384 ranks in 2 s and 300 MB",
            "plan of all": "the same for all operations and topologies",
            "store": "operations of a rank do not grow with the ranks",
            "16,384 ranks read": "60 s, 2 GB, page under 2.5 MB",
        },
        quick=script("scale.py", "--ranks", "16384", "--parts", "plan,store"),
    ),
    Bench(
        script("random_signals.py", "--trials", "100"),
        {"signals": "nothing lost and nothing left behind, 100 of 100"},
        quick=script("random_signals.py", "--trials", "3"),
        limit_s=2 * 3600.0,
    ),
    Bench(
        tests("tests/test_parsers.py"),
        {"input": "any file or text: a value or one line, never a traceback"},
    ),
)


def names(bench: Bench) -> str:
    """Of its bars, for a person."""
    return ", ".join(bench.bars)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a command and all that it has started; nothing happens to one that is gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(READ_S)


def run(bench: Bench, words: Sequence[str], limit_s: float, result: Result) -> None:
    """Run a command to its end or to ``limit_s`` and fill ``result``; output goes to stderr as it comes."""
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=HERE.parent,
        start_new_session=True,
    )
    assert process.stdout is not None
    # What has left its session may keep the pipe open for longer than the command is there.
    reader = threading.Thread(target=pass_on, args=(process.stdout, result), daemon=True)
    reader.start()
    code = None
    try:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(limit_s)
    finally:
        end(process)
        reader.join(READ_S)
    if code is None:
        result.ended = f"not done in {limit_s:.0f} s"
    elif code != 0:
        result.ended = f"ended with {code}"
    if not result.told and words[0] == "-m" and code is not None:
        result.told = [Told(name, result.ended or "all passed", code == 0) for name in bench.bars]


def pass_on(output: Iterable[str], result: Result) -> None:
    """Show what a command prints as it comes, and keep what it tells."""
    for line in output:
        told = heard(line)
        if told is not None:
            result.told.append(told)
        sys.stderr.write(f"    {line}" if told is None else f"  {said(told)}\n")
        sys.stderr.flush()


def said(told: Told) -> str:
    """One figure as a line."""
    return f"{told.bar}: {told.measured}: {WORDS[told.met]}"


def why_not(bench: Bench) -> str:
    """Why a command cannot run here; empty if it can."""
    if bench.as_root and os.geteuid() != 0:
        return "needs root, for network namespaces"
    if bench.words[0].endswith(".py") and not Path(bench.words[0]).exists():
        return f"{bench.words[0]} is not there"
    return ""


def lines_of(bench: Bench, result: Result) -> list[tuple[str, str, str, str]]:
    """A row of the table for each of its bars: name, asked, measured, word."""
    told = {each.bar: each for each in result.told}
    rows = []
    for name, asked in bench.bars.items():
        each = told.get(name)
        measured = each.measured if each else result.ended or "the command did not tell"
        rows.append((name, asked, measured, WORDS[each.met] if each else "NOT MEASURED"))
    return rows


def chosen(only: str) -> list[Bench]:
    """The commands that tell of a bar whose name has one of these words in it; all for an empty text."""
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    found = [
        each for each in BENCHES if not wanted or any(word in name for name in each.bars for word in wanted)
    ]
    if not found:
        print(f"bars.py: no bar has {only!r} in its name: see --list", file=sys.stderr)
        raise SystemExit(2)
    return found


def markdown(rows: Sequence[tuple[str, str, str, str]], machine: str) -> str:
    """The table as docs/performance.md has it."""
    lines = [f"| {' | '.join(each.replace('|', '/') for each in row)} |" for row in rows]
    return "\n".join([f"{machine}\n", "| bar | asked | measured | |", "|---|---|---|---|", *lines, ""])


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few trials")
    parser.add_argument(
        "--only", default="", metavar="WORD,...", help="bars with one of these in their names"
    )
    parser.add_argument("--list", action="store_true", help="the bars, measuring nothing")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    asked = parser.parse_args()
    benches = chosen(asked.only)
    if asked.list:
        for bench in benches:
            for name, text in bench.bars.items():
                print(f"{name:24} {text}")
        return
    rows: list[tuple[str, str, str, str]] = []
    begun, interrupted = time.strftime("%Y-%m-%d %H:%M"), False
    try:
        for number, bench in enumerate(benches, 1):
            words = bench.quick if asked.quick and bench.quick else bench.words
            print(
                f"{number} of {len(benches)}: {names(bench)} (load {os.getloadavg()[0]:.1f})", file=sys.stderr
            )
            result = Result(ended=why_not(bench))
            try:
                if not result.ended:
                    run(bench, words, bench.limit_s, result)
            finally:
                rows += lines_of(bench, result)
    except KeyboardInterrupt:
        print("ended by Ctrl-C: what was measured until then", file=sys.stderr)
        interrupted = True
    machine = (
        f"Begun {begun} on {os.cpu_count()} cores, Python {platform.python_version()}"
        f"{', few trials (--quick)' if asked.quick else ''}."
    )
    print(machine)
    wide = [max(len(row[column]) for row in rows) if rows else 0 for column in (0, 1, 2)]
    for row in rows:
        print("  ".join((row[0].ljust(wide[0]), row[2].ljust(wide[2]), row[3].ljust(12), row[1])))
    if asked.markdown:
        asked.markdown.write_text(markdown(rows, machine), "utf-8")
    told = {row[3] for row in rows}
    sys.exit(130 if interrupted else 1 if "MISSED" in told else 3 if "NOT MEASURED" in told else 0)


if __name__ == "__main__":
    main()
