"""The files of a run folder: names, what they tell of the run, what is left when one cannot be written."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from ncclbench.errors import WriteRefused

META_FILE = "run.json"
SAMPLES_FILE = "samples.jsonl"
SUMMARY_FILE = "summary.csv"
REPORT_FILE = "report.html"
LOCK_FILE = ".lock"
PRESET_FILE = "preset.json"

# Of run.json, in which its kind stands among the first keys.
_START = 4096


def kind_of_run(path: Path) -> str | None:
    """Which command filled the folder, as its run.json tells: "sweep", "import"; None where it holds none."""
    try:
        with plain_file(path / META_FILE) as file:
            start = file.read(_START)
    except (OSError, ValueError):
        return None
    found = re.search(rb'"kind":\s*"(\w+)"', start)
    return found[1].decode() if found else "sweep"


def plain_file(path: Path) -> BinaryIO:
    """A file opened for reading, if it is one: opening a pipe would wait for who writes to it.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is a device, a pipe or a folder; or no file can be called so.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is a device, a pipe or a folder")
    return open(descriptor, "rb")


def disk_error(path: Path, error: OSError) -> WriteRefused:
    """The line for a write to ``path``, a file of a run folder, that the system refused."""
    mend, run = _kept(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        told = WriteRefused(f"disk full at {path}: make room", mend)
    else:
        told = WriteRefused(f"cannot write {path} ({error.strerror})", mend)
    told.run = run
    return told


def _kept(path: Path) -> tuple[str, Path | None]:
    """What is there though ``path`` could not be written and how to go on, and the folder of that run."""
    folder = path.parent
    kind = kind_of_run(folder)
    if path.name in (META_FILE, SAMPLES_FILE) and kind == "import":
        return f"import again into another folder, or remove {folder} first", None
    if path.name in (META_FILE, SAMPLES_FILE, SUMMARY_FILE) and kind == "sweep":
        return f"what was measured is kept; resume with ncclbench sweep --resume {folder}", folder
    if kind is None and os.path.isfile(folder / PRESET_FILE):
        return f"what was measured is kept; go on with ncclbench sweep --resume {folder}", folder
    if kind is None:
        return "give the command again, or write elsewhere", None
    if path.name in (META_FILE, SAMPLES_FILE):
        return f"what was measured is shown by ncclbench report {folder}; measure again elsewhere", folder
    return f"the run is whole; its page is written by ncclbench report {folder}", folder
