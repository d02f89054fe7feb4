"""Counters of errors that ought to stand still: of a GPU, its links and the NICs; what rose, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.environment import nvml as nvml_calls
from ncclbench.environment.gpu import FIELDS
from ncclbench.environment.nvml import Read
from ncclbench.environment.throttle import COUNTERS, Gauge

Reading = dict[str, Any]

# Summed over all NVLinks of the GPU. The first three ended with Hopper, the others began with Blackwell
# (release notes of the driver, 560 to 570).
_OF_LINKS = {
    "nvlink_replay": "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",
    "nvlink_recovery": "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY",
    "nvlink_crc": "NVML_FI_DEV_NVLINK_ERROR_DL_CRC",
    "nvlink_malformed_packets": "NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS",
    "nvlink_buffer_overruns": "NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS",
    "nvlink_receive_errors": "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",
    "nvlink_remote_errors": "NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS",
    "nvlink_integrity_errors": "NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "nvlink_discards": "NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS",
    "nvlink_recoveries": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
    "nvlink_failed_recoveries": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "nvlink_effective_errors": "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
    "nvlink_symbol_errors": "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS",
}

# What is told when it rises during a run, in the order of how bad it is.
ERRORS = {
    "ecc_uncorrected": "uncorrected ECC errors",
    "rows_remapped_uncorrected": "memory rows remapped for uncorrected errors",
    "nvlink_failed_recoveries": "failed NVLink recoveries",
    "nvlink_recovery": "NVLink recoveries",
    "nvlink_recoveries": "NVLink recoveries",
    "nvlink_replay": "NVLink replay errors",
    "nvlink_crc": "NVLink CRC errors",
    "nvlink_malformed_packets": "malformed NVLink packets",
    "nvlink_buffer_overruns": "NVLink buffer overruns",
    "nvlink_receive_errors": "NVLink receive errors",
    "nvlink_remote_errors": "NVLink errors of the remote end",
    "nvlink_integrity_errors": "NVLink integrity errors",
    "nvlink_discards": "discarded NVLink packets",
    "nvlink_effective_errors": "NVLink errors after correction",
    "nvlink_symbol_errors": "NVLink symbol errors",
    "pcie_replay": "PCIe replays",
    "rows_remapped_corrected": "memory rows remapped for corrected errors",
    "ecc_corrected": "corrected ECC errors",
}
# What a run may only leave as good as it found it: the word, and which way is worse.
_FALLS = {"nvlinks_up": "NVLinks that are up", "pcie_width": "PCIe lanes"}
_ARISES = {
    "row_remap_pending": "a memory row waits to be remapped",
    "row_remap_failed": "a memory row could not be remapped",
    "retired_pages_pending": "memory pages wait to be retired",
}
# Of NICs: errors are told, drops are only kept, since a healthy Ethernet port drops what nobody asked for.
_NIC_QUIET = ("rx_dropped", "tx_dropped")


def read_counters(identity: str | int) -> Reading:
    """Counters and state of a GPU. For workers only: it initialises NVML.

    Returns:
        ``ERRORS`` since the driver was loaded, ``throttled_us`` by word likewise, and as they are now
        ``sm_clock_mhz``, ``memory_clock_mhz``, ``power_w``, ``temperature_c``, ``memory_temperature_c``,
        ``throttle_reasons``, ``pcie_generation``, ``pcie_width``, ``nvlinks_up``, whether rows or pages
        wait (``row_remap_pending``, ``row_remap_failed``, ``retired_pages_pending``). What NVML does not
        tell is None, and ``missing`` holds its reason.
    """
    try:
        with nvml_calls.opened() as nvml:
            return _read(nvml, identity)
    except Exception as error:  # no driver, no library, no permission: each binding says it in its own way
        return nvml_calls.nothing([*_READS, *_OF_LINKS, "throttled_us"], str(error) or type(error).__name__)


def _read(nvml: Any, identity: str | int) -> Reading:
    handle = nvml_calls.find_handle(nvml, identity)
    found = nvml_calls.read_each(nvml, handle, _READS)
    missing: dict[str, str] = found.pop("missing")
    counts, absent = _of_links(nvml, handle)
    missing |= absent
    counters_ns = Gauge(nvml, handle).read().counters_ns
    throttled = {
        word: count // 1000
        for (word, _, _), count in zip(COUNTERS, counters_ns, strict=True)
        if count is not None
    }
    if not throttled:
        missing["throttled_us"] = "NVML counts it for no reason"
    missing["xid"] = "NVML keeps no count of them; the kernel's log does"
    return {**found, **counts, "throttled_us": throttled or None, "xid": None, "missing": missing}


def _of_links(nvml: Any, handle: Any) -> tuple[dict[str, int | None], dict[str, str]]:
    """Errors of all NVLinks together, and why some are not known."""
    links = nvml_calls.link_count(nvml, handle)
    counts: dict[str, int | None] = dict.fromkeys(_OF_LINKS)
    if not links:
        return counts, dict.fromkeys(_OF_LINKS, "this GPU has no NVLink")
    missing: dict[str, str] = {}
    known = {key: getattr(nvml, field) for key, field in _OF_LINKS.items() if hasattr(nvml, field)}
    wanted = [(field, link) for field in known.values() for link in range(links)]
    try:
        values = nvml_calls.field_values(nvml, handle, wanted)
    except nvml.NVMLError as error:
        return counts, dict.fromkeys(_OF_LINKS, str(error))
    for number, key in enumerate(known):
        told = [int(value) for value in values[number * links : (number + 1) * links] if value is not None]
        counts[key] = sum(told) if told else None
    for key, count in counts.items():
        if count is None:
            missing[key] = "not counted by this GPU" if key in known else "not in this binding"
    return counts, missing


def risen(before: Reading, after: Reading) -> dict[str, Any]:
    """By how much each counter rose; only what did, and not what started anew in between."""
    found = {key: by for key in ERRORS if (by := _difference(before.get(key), after.get(key)))}
    then, now = before.get("throttled_us") or {}, after.get("throttled_us") or {}
    throttled = {word: by for word in now if (by := _difference(then.get(word), now[word]))}
    return {**found, **({"throttled_us": throttled} if throttled else {})}


def complaints(before: Reading, after: Reading) -> list[str]:
    """What became worse between two readings of a GPU, in words; throttling is told by the cases."""
    rose = risen(before, after)
    lines = [f"{what} rose by {rose[key]}" for key, what in ERRORS.items() if key in rose]
    for key, what in _FALLS.items():
        then, now = before.get(key), after.get(key)
        if then is not None and now is not None and now < then:
            lines.append(f"{what} fell from {then} to {now}")
    return lines + [what for key, what in _ARISES.items() if after.get(key) and before.get(key) is False]


def nic_risen(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The same of NICs: by port, then by counter."""
    found = {
        port: {key: by for key in now if (by := _difference(before.get(port, {}).get(key), now[key]))}
        for port, now in after.items()
    }
    return {port: rose for port, rose in found.items() if rose}


def nic_complaints(rose: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What rose on NICs, in words."""
    return [
        f"{port}: {key} rose by {by}"
        for port, counters in rose.items()
        for key, by in counters.items()
        if key not in _NIC_QUIET
    ]


def factored(readings: Sequence[Reading | None]) -> dict[str, Any]:
    """Readings of all ranks with what is alike kept once: ``common``, and by rank the rest, null for none."""
    known = [reading for reading in readings if reading is not None]
    first = known[0] if known else {}
    common = {
        key: value
        for key, value in first.items()
        if all(key in each and each[key] == value for each in known)
    }
    ranks = [
        None if each is None else {key: value for key, value in each.items() if key not in common}
        for each in readings
    ]
    return {"common": common, "ranks": ranks}


def _difference(then: int | None, now: int | None) -> int:
    return max(0, now - then) if then is not None and now is not None else 0


def _memory_temperature(nvml: Any, handle: Any) -> int | None:
    (degrees,) = nvml_calls.field_values(nvml, handle, [nvml.NVML_FI_DEV_MEMORY_TEMP])
    return None if degrees is None else int(degrees)


def _remapped(place: int) -> Read:
    return lambda nvml, handle: int(nvml.nvmlDeviceGetRemappedRows(handle)[place])


_READS: dict[str, Read] = {
    **{
        key: FIELDS[key]
        for key in (
            "sm_clock_mhz",
            "memory_clock_mhz",
            "power_w",
            "temperature_c",
            "throttle_reasons",
            "pcie_generation",
            "pcie_width",
            "nvlinks_up",
            "ecc_corrected",
            "ecc_uncorrected",
            "row_remap_pending",
            "row_remap_failed",
            "retired_pages_pending",
        )
    },
    "memory_temperature_c": _memory_temperature,
    "pcie_replay": lambda nvml, handle: int(nvml.nvmlDeviceGetPcieReplayCounter(handle)),
    "rows_remapped_corrected": _remapped(0),
    "rows_remapped_uncorrected": _remapped(1),
}
