"""Calibrations, kept in the user's data folder: the newest for each set of hosts, ranks and backend."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import platformdirs

from ncclbench.errors import MeasurementError, brief
from ncclbench.store.files import plain_file
from ncclbench.writing import write_whole

CALIBRATION_SCHEMA = 1

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

Tell = Callable[[str], None]


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of times with its 95 % interval."""

    ratio: _Positive
    ci_low: _NotNegative
    ci_high: _NotNegative


class Resolution(msgspec.Struct, frozen=True):
    """What can be told apart in one case; keys as in docs/calibrating.md."""

    op: str
    dtype: str
    nbytes: _Count
    mode: str
    statistic: str
    time_us: _NotNegative
    spread: _NotNegative | None
    epoch_s: _Positive | None
    timed_s: _NotNegative
    iters_in_epoch: Annotated[int, msgspec.Meta(ge=1)]
    smallest: _NotNegative | None
    epochs: _Count | None
    drift: float | None
    drifts: bool | None
    autocorrelation: float | None
    correlated: bool | None
    time_drift: float | None
    time_drifts: bool | None
    warming: bool | None
    spread_process: _NotNegative | None
    spread_group: _NotNegative | None
    spread_iteration: _NotNegative | None
    p_process: _Share | None
    beside_over_alone: Ratio | None


class Calibration(msgspec.Struct, frozen=True):
    """The kept document; keys as in docs/calibrating.md, of which none may be missing."""

    schema: int
    created: str
    ncclbench: str
    hosts: list[str]
    nranks: Annotated[int, msgspec.Meta(ge=1)]
    backend: str
    device: str
    comparisons: _Count
    false_verdicts: _Count
    false_verdict_rate: _Share | None
    rate_low: _Share
    rate_high: _Share
    same: _Count
    budget_s: _Positive
    group_s: _NotNegative | None
    process_s: _NotNegative | None
    resolution: list[Resolution]
    advice: list[str]


def kept_folder() -> Path:
    """Where calibrations are kept: below the user's data folder, XDG_DATA_HOME where that is set."""
    return platformdirs.user_data_path("ncclbench") / "calibrations"


def keep(document: Mapping[str, Any]) -> Path:
    """Keep a calibration in place of a former one of the same hosts, ranks and backend; its file.

    The old file or the new one is there whole at any moment.

    Raises:
        MeasurementError: the system refuses; the line says where and how to mend it.
    """
    path = kept_folder() / _file_name(document["hosts"], document["nranks"], document["backend"])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise MeasurementError(
            f"cannot keep the calibration in {path} ({error.strerror}): make its folder writable, "
            "or set XDG_DATA_HOME to one that is"
        ) from None
    return path


def find(
    environment: Mapping[str, Any], nranks: int, backend: str, tell: Tell = lambda line: None
) -> dict[str, Any] | None:
    """The calibration of a run's hosts, ranks and backend; None where there is none.

    Args:
        environment: of the run, as in run.json.
        tell: gets a line about a file that is there and cannot be used.
    """
    hosts = [host["name"] for host in environment["hosts"]]
    path = kept_folder() / _file_name(hosts, nranks, backend)
    return next(_read([path], hosts[0], nranks, backend, tell), None)


def find_here(nranks: int, backend: str, tell: Tell = lambda line: None) -> dict[str, Any] | None:
    """The newest calibration that this host had a part in, of so many ranks on ``backend``; None without.

    ``tell`` gets a line about each file that cannot be used.
    """
    found = _read(_kept_files(), socket.gethostname(), nranks, backend, tell)
    return max(found, key=lambda document: str(document["created"]), default=None)


def _kept_files() -> list[Path]:
    try:
        return sorted(kept_folder().glob("*.json"))
    except OSError:
        return []


def _read(
    paths: Iterable[Path], host: str, nranks: int, backend: str, tell: Tell
) -> Iterator[dict[str, Any]]:
    """Those of the files that are calibrations of these ranks and backend on a host."""
    for path in paths:
        try:
            with plain_file(path) as file:
                document = json.loads(file.read(), parse_constant=_refuse)
            _check(document, path)
        except FileNotFoundError:
            continue
        except OSError as error:
            tell(f"cannot read the calibration {path} ({error.strerror}): it is left out")
        except (ValueError, RecursionError) as error:
            why = brief(error)
            tell(f"{path} is left out, it is no calibration that this ncclbench can read: {why}")
        else:
            if host in document["hosts"] and (document["nranks"], document["backend"]) == (nranks, backend):
                yield document


def _check(document: Any, path: Path) -> None:
    """Raises ValueError where the file holds anything but a calibration of the machine it is named after."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != CALIBRATION_SCHEMA:
        raise ValueError(f"its schema is {schema!r}, not {CALIBRATION_SCHEMA}")
    msgspec.convert(document, Calibration)
    if path.name != _file_name(document["hosts"], document["nranks"], document["backend"]):
        raise ValueError("it is of another machine than its name says")


def _file_name(hosts: Iterable[str], nranks: int, backend: str) -> str:
    """Readable, and different for any two machines."""
    names = sorted(set(hosts))
    digest = hashlib.sha256("\n".join([*names, str(nranks), backend]).encode()).hexdigest()[:12]
    first = re.sub(r"[^A-Za-z0-9.-]+", "-", names[0] if names else "")[:40]
    backend = re.sub(r"[^A-Za-z0-9.-]+", "-", backend)[:40]
    return f"{first}-{len(names)}-hosts-{nranks}-ranks-{backend}-{digest}.json"


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")
