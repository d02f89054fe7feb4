"""NVML as the others here use it: opened, a GPU found, many values read at once, each with its own fate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

# Reads one thing of a GPU, given the binding and the GPU's handle.
Read = Callable[[Any, Any], Any]

# A field of NVML, or a field of one of its links.
Field = int | tuple[int, int]

# Members of the union c_nvmlValue_t by nvmlValueType_t, nvml.h.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

# nvmlNvlinkVersion_t, nvml.h.
_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}


@contextmanager
def opened() -> Iterator[Any]:
    """The binding, initialised; for workers only, since it must not happen in a supervisor.

    Raises:
        Exception: no driver, no library, no permission: each binding says it in its own way.
    """
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def find_handle(nvml: Any, identity: str | int) -> Any:
    """The handle of a GPU by UUID, PCI bus id, or NVML's index.

    Raises:
        NVMLError: there is none, or it is not to be seen.
    """
    if isinstance(identity, int):
        return nvml.nvmlDeviceGetHandleByIndex(identity)
    if identity.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(identity)
    return nvml.nvmlDeviceGetHandleByPciBusId(identity)


def read_each(nvml: Any, handle: Any, reads: Mapping[str, Read]) -> dict[str, Any]:
    """Every value by its key; what NVML does not tell is None, and ``missing`` holds its reason."""
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for key, read in reads.items():
        try:
            found[key] = read(nvml, handle)
        except (nvml.NVMLError, AttributeError) as error:  # AttributeError: an older binding
            found[key] = None
            missing[key] = str(error)
    return {**found, "missing": missing}


def nothing(keys: Sequence[str], reason: str) -> dict[str, Any]:
    """What ``read_each`` returns where nothing can be read."""
    return {**dict.fromkeys(keys), "missing": dict.fromkeys(keys, reason)}


def field_values(nvml: Any, handle: Any, fields: Sequence[Field]) -> list[int | float | None]:
    """Values of fields in one call; None for each that this GPU does not have.

    Raises:
        NVMLError: the call as a whole failed.
    """
    if not fields:
        return []
    answers = nvml.nvmlDeviceGetFieldValues(handle, list(fields))
    return [
        getattr(answer.value, _MEMBERS[answer.valueType])
        if answer.nvmlReturn == nvml.NVML_SUCCESS and answer.valueType < len(_MEMBERS)
        else None
        for answer in answers
    ]


def text(value: str | bytes) -> str:
    """A string of NVML, which structures hold as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def active_links(nvml: Any, handle: Any) -> list[int] | None:
    """Numbers of the NVLinks that are up; None where the GPU has none.

    A link of Blackwell that sleeps is up: NVML reports it as active.
    """
    count = link_count(nvml, handle)
    return [link for link in range(count) if _is_up(nvml, handle, link)] if count else None


def link_count(nvml: Any, handle: Any) -> int:
    """How many NVLinks the GPU has, up or down; 0 for one without NVLink, or where NVML does not tell."""
    try:
        (count,) = field_values(nvml, handle, [nvml.NVML_FI_DEV_NVLINK_LINK_COUNT])
    except nvml.NVMLError:
        return 0
    return min(int(count or 0), int(nvml.NVML_NVLINK_MAX_LINKS))


def _is_up(nvml: Any, handle: Any, link: int) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
    except nvml.NVMLError:
        return False


def link_version(nvml: Any, handle: Any) -> str | None:
    """Generation of the GPU's NVLinks, "4.0"; None where none is up.

    As the driver says it: of H100 some are reported to say 5.0, so that the speed is what to rely on.
    """
    up = active_links(nvml, handle)
    if not up:
        return None
    number = int(nvml.nvmlDeviceGetNvLinkVersion(handle, up[0]))
    return _VERSIONS.get(number, str(number))


def link_speed_MBs(nvml: Any, handle: Any) -> int | None:
    """Speed of one NVLink each way, MB/s; None where none is up or NVML does not tell."""
    up = active_links(nvml, handle)
    if not up:
        return None
    of_link = (nvml.NVML_FI_DEV_NVLINK_GET_SPEED, up[0])
    speeds = field_values(nvml, handle, [of_link, nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
    return next((int(speed) for speed in speeds if speed), None)
