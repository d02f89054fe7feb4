"""GPUs: how many CUDA would see, counted without CUDA; and what NVML knows of one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncclbench.environ import variables
from ncclbench.environment import nvml as nvml_calls
from ncclbench.environment.nvml import Read

_DRIVER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")

# Bits of nvmlDeviceGetCurrentClocksEventReasons, nvml.h.
REASONS = {
    0x001: "gpu idle",
    0x002: "applications clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clocks setting",
    0x200: "board limit",
    0x400: "reliability",
}

# What changes from moment to moment, so that two GPUs differing in it are still alike.
MOMENTARY = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "memory_used_bytes",
    "power_w",
    "temperature_c",
    "throttle_reasons",
    # An idle GPU may lower the generation of its link, and errors are counted since the driver was loaded.
    "pcie_generation",
    "ecc_corrected",
    "ecc_uncorrected",
)
# What tells a GPU from its twin.
IDENTITY = ("uuid", "pci_bus_id", "serial")


def count_gpus(
    environ: Mapping[str, str] | None = None, driver: Path = _DRIVER, devices: Path = _DEVICES
) -> int:
    """GPUs that CUDA would show this process, from files alone: no CUDA, no NVML, no torch.

    CUDA_VISIBLE_DEVICES is read as CUDA reads it: the list ends at the first entry that names no GPU, a
    GPU named twice makes all of it void, and of MIG instances a process sees only one.
    """
    present = _present(driver, devices)
    visible = (variables() if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if present == 0 or visible is None:
        return present
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.startswith("MIG-"):
            return 1 if not chosen else len(chosen)
        if not (entry.startswith("GPU-") or (re.fullmatch(r"[0-9]{1,6}", entry) and int(entry) < present)):
            break
        chosen.append(entry if entry.startswith("GPU-") else str(int(entry)))
    return 0 if len(set(chosen)) < len(chosen) else min(len(chosen), present)


def _present(driver: Path, devices: Path) -> int:
    """GPUs of this machine or container.

    A container may see the driver's list of all GPUs of its host but only its own device files, or the
    other way round; what it can use stands in both.
    """
    listed = len(list(driver.glob("*"))) if driver.is_dir() else 0
    files = sum(path.name.removeprefix("nvidia").isdecimal() for path in devices.glob("nvidia[0-9]*"))
    return min(listed, files) if listed and files else max(listed, files)


def bus_id(properties: Any) -> str:
    """A GPU's PCI bus id as NVML writes it, "00000000:3B:00.0", of torch's properties of the device."""
    domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    return f"{domain:08X}:{bus:02X}:{slot:02X}.0"


def read_gpu(identity: str | int) -> dict[str, Any]:
    """What NVML knows of a GPU. For workers only: it initialises NVML.

    Args:
        identity: UUID ("GPU-..." or "MIG-..."), PCI bus id ("00000000:3B:00.0"), or NVML's index, which
            CUDA_VISIBLE_DEVICES does not change.

    Returns:
        clocks in MHz, power in watts, memory in bytes, temperature in degrees Celsius, speed of an NVLink in
        MB/s each way; what NVML does not tell is None, and ``missing`` holds its reason by the same key.
    """
    try:
        with nvml_calls.opened() as nvml:
            return nvml_calls.read_each(nvml, nvml_calls.find_handle(nvml, identity), FIELDS)
    except nvml_calls.Unavailable as error:
        return nvml_calls.nothing([*FIELDS], str(error))


def _bus_id(nvml: Any, handle: Any) -> str:
    return nvml_calls.text(nvml.nvmlDeviceGetPciInfo(handle).busId)


def _clock(kind: str, which: str) -> Read:
    return lambda nvml, handle: int(
        nvml.nvmlDeviceGetClock(
            handle, getattr(nvml, f"NVML_CLOCK_{kind}"), getattr(nvml, f"NVML_CLOCK_ID_{which}")
        )
    )


def _ecc(kind: str) -> Read:
    """Errors since the driver was loaded."""
    return lambda nvml, handle: int(
        nvml.nvmlDeviceGetTotalEccErrors(
            handle, getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"), nvml.NVML_VOLATILE_ECC
        )
    )


def reason_bits(nvml: Any, handle: Any) -> int:
    """Why the clocks are below their maximum, as bits of ``REASONS``.

    Raises:
        NVMLError: NVML does not tell.
    """
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (nvml.NVMLError, AttributeError):  # the name before driver 535
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def reason_words(bits: int) -> list[str]:
    """The bits in words; what is not known keeps its number."""
    known = [name for bit, name in REASONS.items() if bits & bit]
    unknown = bits & ~sum(REASONS)
    return [*known, f"reason {unknown:#x}"] if unknown else known


FIELDS: dict[str, Read] = {
    "name": lambda nvml, handle: nvml.nvmlDeviceGetName(handle),
    "uuid": lambda nvml, handle: nvml.nvmlDeviceGetUUID(handle),
    "pci_bus_id": _bus_id,
    "driver": lambda nvml, handle: nvml.nvmlSystemGetDriverVersion(),
    "vbios": lambda nvml, handle: nvml.nvmlDeviceGetVbiosVersion(handle),
    "memory_total_bytes": lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    "memory_used_bytes": lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
    "sm_clock_mhz": lambda nvml, handle: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
    "sm_clock_max_mhz": lambda nvml, handle: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
    "sm_clock_set_mhz": _clock("SM", "APP_CLOCK_TARGET"),
    "sm_clock_default_mhz": _clock("SM", "APP_CLOCK_DEFAULT"),
    "memory_clock_mhz": lambda nvml, handle: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
    "memory_clock_max_mhz": lambda nvml, handle: int(
        nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
    ),
    "power_w": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    "power_limit_w": lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
    "power_limit_default_w": lambda nvml, handle: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
    "temperature_c": lambda nvml, handle: int(
        nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    ),
    "throttle_reasons": lambda nvml, handle: reason_words(reason_bits(nvml, handle)),
    "ecc": lambda nvml, handle: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
    "mig": lambda nvml, handle: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
    "persistence": lambda nvml, handle: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
    "serial": lambda nvml, handle: nvml.nvmlDeviceGetSerial(handle),
    "pcie_generation": lambda nvml, handle: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
    "pcie_generation_max": lambda nvml, handle: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
    "pcie_width": lambda nvml, handle: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    "pcie_width_max": lambda nvml, handle: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
    "nvlinks": lambda nvml, handle: nvml_calls.link_count(nvml, handle),
    "nvlinks_up": lambda nvml, handle: len(nvml_calls.active_links(nvml, handle) or ()),
    "nvlink_version": nvml_calls.link_version,
    "nvlink_MBs": nvml_calls.link_speed_MBs,
    "ecc_corrected": _ecc("CORRECTED"),
    "ecc_uncorrected": _ecc("UNCORRECTED"),
    "row_remap_pending": lambda nvml, handle: bool(nvml.nvmlDeviceGetRemappedRows(handle)[2]),
    "row_remap_failed": lambda nvml, handle: bool(nvml.nvmlDeviceGetRemappedRows(handle)[3]),
    "retired_pages_pending": lambda nvml, handle: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
}
