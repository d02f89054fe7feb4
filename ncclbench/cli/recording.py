"""``--flight-recorder``: for every command that launches workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncclbench.cli.declaring import option, under
from ncclbench.environ import variables
from ncclbench.errors import RequestError

# As torch reads them (FlightRecorder.hpp): the first that is set counts, and 0 records nothing.
_BUFFER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def why_off(environ: Mapping[str, str]) -> str | None:
    """What keeps torch's flight recorder from recording, and how to mend it; None where it records."""
    for name in _BUFFER_SIZES:
        if value := environ.get(name):
            is_off = re.fullmatch(r"-[0-9]+|0+", value.strip()) is not None
            return f"{name}={value} turns torch's flight recorder off: unset it" if is_off else None
    return None


def has_dumps(run: Path) -> bool:
    """Whether flight recorders were kept in a run folder: then its report has something to show."""
    from ncclbench.report.flight.runs import FLIGHT_FOLDER

    return os.path.isdir(run / FLIGHT_FOLDER)  # a run that no path can name holds none


def _checked(typed: Any, name: str) -> bool:
    if not typed:
        return False
    reason = why_off(variables())
    if reason is not None:
        raise RequestError(f"{name}: {reason}")
    return True


recorder_choice = option(
    "--flight-recorder",
    flag=True,
    parse=_checked,
    help="Where a rank hangs or fails: keep every rank's flight recorder, and say who was stuck.",
)
recorder_option = under("What is kept", recorder_choice)
