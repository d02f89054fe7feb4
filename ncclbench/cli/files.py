"""Files that a command writes beside the run folder, checked before the work is done."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ncclbench.cli.options import folder_name
from ncclbench.errors import NcclbenchError, RequestError

if TYPE_CHECKING:
    from ncclbench.store.folder import RunFolder
    from ncclbench.store.model import Run


# Bytes; a file is written under a longer name first.
_LONGEST_NAME = 230


def free_file(file: Path, mend: str) -> Path:
    """The path itself, if a file can be written there.

    Args:
        mend: how to choose another, "name a file with --out".

    Raises:
        RequestError: nothing can be written there, or a run's own file would be replaced.
    """
    from ncclbench.store.folder import LOCK_FILE, META_FILE, SAMPLES_FILE, SUMMARY_FILE

    if os.path.isdir(file):
        raise RequestError(f"{file} is a folder: {mend}")
    if os.path.exists(file) and not os.path.isfile(file):
        # It would be replaced whole, as a file is.
        raise RequestError(f"{file} is a device or a pipe, no file: {mend}")
    if len(os.fsencode(file.name)) > _LONGEST_NAME:
        raise RequestError(f"{file.name[:40]}... is too long for the name of a file: {mend}")
    if os.path.islink(file):  # where options name one, what it leads to was looked up before
        raise RequestError(f"{file} is a link that is not followed: {mend}")
    if file.name in (META_FILE, SAMPLES_FILE, SUMMARY_FILE, LOCK_FILE):
        raise RequestError(f"{file} is the name of a run's own file: {mend}")
    if not os.path.isdir(file.parent):
        raise RequestError(f"there is no folder {file.parent}: make it, or {mend}")
    if not os.access(file.parent, os.W_OK):
        raise RequestError(f"cannot write to {file.parent}: {mend} elsewhere")
    return file


def new_run_folder(out: str | None, label: str | None) -> RunFolder:
    """The folder of a new run, locked: ``out``, else results/<time>-<label>.

    Raises:
        RequestError: it already holds a run, or cannot be written.
    """
    from ncclbench.store.folder import RunFolder

    if out is not None:
        return RunFolder.create(Path(out))
    for path in default_folders(label):
        # Made here or nowhere: another command may be at the same name in the same moment.
        with contextlib.suppress(FileExistsError):
            return RunFolder.create(path, must_be_new=True)
    raise AssertionError("names do not end")


def kept_run(folder: Path, ended: NcclbenchError | None) -> Run:
    """The run as readers see it.

    Raises:
        NcclbenchError: it cannot be read; ``ended``, where that kept the folder from becoming a run.
    """
    from ncclbench.store.reader import load_run

    try:
        return load_run(folder)
    except RequestError:
        if ended is None:
            raise
        raise ended from None


def default_folders(label: str | None) -> Iterator[Path]:
    """Where a run goes that names no folder, numbered where another one began within the same second."""
    name = folder_name(datetime.now(), label)
    for number in itertools.count(1):
        yield Path("results") / (name if number == 1 else f"{name}.{number}")
