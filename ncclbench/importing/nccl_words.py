"""The lines of nccl-tests and rccl-tests around tables: banners, parameters, devices, footers, failures."""

from __future__ import annotations

import re
from pathlib import Path

from ncclbench.environment.variables import HIDDEN, is_secret, looks_secret, without_secrets
from ncclbench.importing.model import DeviceLine
from ncclbench.store.printed import OverRanks

# The programs' names to those of COLLECTIVES; hypercube has no entry there and keeps its name.
OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoallv": "all_to_allv",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "scatter": "scatter",
    "gather": "gather",
    "hypercube": "hypercube",
}

# Lines without any of these words, table rows apart, are passed over: looked up before all else.
KEYWORDS = frozenset(
    (
        "size", "bytes", "in-place", "out-of-place", "bounds", "bandwidth", "asterisks", "nGpus", "Using",
        "Rank", "version", "Version", "Collective", "Blocking", "Reducing", "Ignoring", "invalid",
        "Invalid", "failure", "timeout", "Segmentation", "error:", "[ERROR]", "noticed", "exited",
        "CANCELLED", "Killed", "power", "-t", "...", "<snip>", "truncated", "Truncated", "(truncated",
        "truncated>",
    )
)  # fmt: skip

_NAMES = "|".join(OPS)
_PROGRAM = re.compile(rf"(?<![^\s/\"'`=(:;&|])({_NAMES})_perf")
# Google's wrapper script, run_nccl_tests.sh, names the test after -t.
_WRAPPED = re.compile(rf"\s-t\s+({_NAMES})(?![\w-])")
_IN_FILE_NAME = re.compile(
    r"(?<![a-z])(all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?allv|all_?to_?all|send_?recv)",
    re.IGNORECASE,
)
_BANNER = re.compile(r"Collective test (starting|concluded): *(\S+)")
_TESTS = re.compile(r"(nccl|rccl)-tests(?: version |: Version )(\S+)(?:.*library=(\d+))?")
_LIBRARY = re.compile(r"\b([NR]CCL) version *:? *(\d[\w.+-]*)")
_RUNTIME = re.compile(r"^(HIP|ROCm) version *: *(\d\S*)")
_SETTING = re.compile(
    r"(?<!\w)(nThread|nGpus|minBytes|maxBytes|step|warmup iters|agg iters|iters|validation|graph|unalign)"
    r" *:? *(\d{1,20}(?:\([a-z]+\))?)"
)
_DEVICE = re.compile(
    r"Rank +(\d{1,7}) +(?:Group +(\d{1,7}) +)?(?:Pid +\d+ +)?on +(\S{1,255}) +"
    r"device +(\d{1,5}) +\[([^\]]{0,40})\] *(.*)"
)
_PCI = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?")
_AVERAGE = re.compile(r"Avg bus bandwidth *: *(\S+)")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values *: *(\d{1,18}) *(OK|FAILED)?")
_FAILURE = re.compile(
    r"Test (?:NCCL|CUDA|HIP|RCCL) failure|: Test failure|: Test timeout|Segmentation fault|^# error: |"
    r"Invalid number of GPUs|requested GPUs .* greater than|not a power of 2, skipping|mpirun noticed|"
    r"exited on signal|CANCELLED AT|DUE TO TIME LIMIT|srun: error: |^Killed$"
)
_NOTE = re.compile(r"Reducing maxBytes to|not supported .*Ignoring|^invalid (?:type|op) .*defaulting")
_TRUNCATED = re.compile(r"truncated", re.IGNORECASE)
_LETTER = re.compile(r"\w")
# The value, and what else of the word may tell that it is a secret.
_VARIABLE = re.compile(
    r"(?<![\w-])((?:NCCL|RCCL|UCX|FI|HSA|MSCCL|GLOO)_[A-Z0-9_]{2,60})=([^\s'\";]+)(?=(\S*))"
)
_SET = re.compile(r"NCCL INFO ((?:NCCL|RCCL)_[A-Z0-9_]{2,60}) set by environment to (\S+?)(\.?)$")
_LONGEST_VALUE = 1000

# Of ``-a``: what is printed of the ranks' times.
OVER_RANKS: dict[str, OverRanks] = {"0": "rank 0", "1": "mean", "2": "min", "3": "max"}
_AVERAGE_OPTION = re.compile(r"\s(?:-a|--average)[ =]*([0-3])(?!\S)")


def program_op(text: str) -> str | None:
    """The collective of the first program named in the text; None if there is none."""
    match = _PROGRAM.search(text)
    return OPS[match[1]] if match else None


def commands(text: str) -> list[tuple[str, OverRanks]]:
    """Of each program in a command line, in order: its collective, and what it prints of the ranks' times."""
    programs = list(_PROGRAM.finditer(text))
    ends = [*(program.start() for program in programs[1:]), len(text)]
    found = (
        [
            (OPS[program[1]], over_ranks(text[program.end() : end]))
            for program, end in zip(programs, ends, strict=True)
        ]
        if programs
        else []
    )
    wrapped = _WRAPPED.search(text) if "nccl" in text else None
    return [*found, (OPS[wrapped[1]], "mean")] if wrapped else found


def over_ranks(arguments: str) -> OverRanks:
    """What is printed of the ranks' times by the arguments of a program: ``-a``, the mean by default."""
    asked = _AVERAGE_OPTION.findall(arguments)
    return OVER_RANKS[asked[-1]] if asked else "mean"


def op_in_name(file: Path) -> str | None:
    """The collective a file's name speaks of: a hint, no evidence."""
    match = _IN_FILE_NAME.search(file.name)
    if match is None:
        return None
    compact = match[1].lower().replace("_", "")
    return next(op for name, op in OPS.items() if name.replace("_", "") == compact)


def banner(text: str) -> tuple[str, str] | None:
    """("starting" or "concluded", program) of a test's own announcement."""
    match = _BANNER.search(text)
    return (match[1], match[2]) if match else None


def tests_version(text: str) -> tuple[str, str, str | None] | None:
    """("nccl" or "rccl", version of the tests, version of the library or None)."""
    match = _TESTS.search(text)
    if match is None:
        return None
    return match[1], match[2][:100], version_of_code(match[3]) if match[3] else None


def nccl_version(text: str) -> tuple[str, str, str | None] | None:
    """("NCCL" or "RCCL", its version, what it was built for or None)."""
    match = _LIBRARY.search(text)
    if match is None:
        return None
    version, _, built = match[2].partition("+")
    runtime = f"CUDA {built[4:]}" if built.startswith("cuda") else None
    return match[1], version[:100], runtime


def runtime_version(text: str) -> str | None:
    """HIP's or ROCm's version as rccl-tests prints it."""
    match = _RUNTIME.search(text)
    return f"{match[1]} {match[2]}"[:100] if match else None


def settings(text: str) -> dict[str, str]:
    """The parameters of a line that begins with nThread; {} for others."""
    return dict(_SETTING.findall(text)) if "nGpus" in text and "nThread" in text else {}


def device(text: str) -> tuple[DeviceLine, int] | None:
    """A rank as listed, and its group."""
    match = _DEVICE.search(text)
    if match is None:
        return None
    rank, group, host, number, place, name = match.groups()
    pci = place if _PCI.fullmatch(place) else None
    line = DeviceLine(int(rank), host, int(number), pci, name.strip()[:100] or None)
    return line, int(group or 0)


def average_GBs(text: str) -> str | None:
    """What stands after "Avg bus bandwidth", whether it is a number or not."""
    match = _AVERAGE.search(text)
    return match[1] if match else None


def out_of_bounds(text: str) -> int | None:
    """Measurements with wrong values, as the footer counts them."""
    match = _OUT_OF_BOUNDS.search(text)
    return int(match[1]) if match else None


def failure(text: str) -> str | None:
    """The line if it tells why a test ended early, without secrets."""
    return shown(text)[:300] if _FAILURE.search(text) else None


def note(text: str) -> str | None:
    """The line if it tells that the test did something else than asked, without secrets."""
    return shown(text.strip(" #"))[:200] if _NOTE.search(text) else None


def is_elision(text: str) -> bool:
    """Whether somebody left lines out here."""
    if _TRUNCATED.search(text[:200]):
        return True
    marks = text[:200].replace("<snip>", "...")
    return "..." in marks and _LETTER.search(marks) is None


def variables(text: str) -> dict[str, str]:
    """Variables of communication libraries, set in a command line or told by NCCL, without secrets."""
    found = _SET.findall(text) if "set by environment" in text else _VARIABLE.findall(text)
    return {
        name: HIDDEN if is_secret(name, value + rest) else value[:_LONGEST_VALUE]
        for name, value, rest in found
    }


def shown(text: str) -> str:
    """A line that is recorded as it stands, without what looks like a secret."""
    words = " ".join(without_secrets(text.split()))
    return HIDDEN if looks_secret(words) else words


def version_of_code(code: str) -> str:
    """2.29.7 from 22907, as nccl.h makes it; old ones (2708 for 2.7.8) have a thousand per minor version."""
    number = int(code)
    if number < 10_000:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
