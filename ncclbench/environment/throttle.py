"""A glance at a GPU between blocks: is it throttled, and did it get narrower? Few calls, and cheap ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncclbench.environment import nvml as nvml_calls
from ncclbench.environment.gpu import REASONS, reason_bits

# Reasons that hold a GPU below what it could do with the load it has. Being idle is none, and neither is
# what somebody has set.
THROTTLING = {
    bit: word
    for bit, word in REASONS.items()
    if word not in ("gpu idle", "applications clocks setting", "sync boost", "display clocks setting")
}
_IDLE = 0x001

# Time spent throttled since the driver was loaded, nanoseconds: its word, the field, and the policy of the
# older nvmlDeviceGetViolationStatus, which GPUs without the field may answer.
COUNTERS: tuple[tuple[str, str, str | None], ...] = (
    ("software power cap", "NVML_FI_DEV_PERF_POLICY_POWER", "NVML_PERF_POLICY_POWER"),
    ("thermal limit", "NVML_FI_DEV_PERF_POLICY_THERMAL", "NVML_PERF_POLICY_THERMAL"),
    ("board limit", "NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT", "NVML_PERF_POLICY_BOARD_LIMIT"),
    ("reliability", "NVML_FI_DEV_PERF_POLICY_RELIABILITY", "NVML_PERF_POLICY_RELIABILITY"),
    ("software thermal slowdown", "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", None),
    ("hardware thermal slowdown", "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", None),
    ("hardware power brake", "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", None),
)
COUNTER_WORDS = tuple(word for word, _, _ in COUNTERS)


@dataclass(frozen=True, slots=True)
class Glance:
    """What one reading found; None where NVML does not tell.

    Attributes:
        reasons: bits of THROTTLING that are active now.
        sm_clock_mhz, temperature_c, power_mw: now.
        pcie_generation: of the link now, only where below what GPU and slot can do and the GPU is not idle.
        pcie_width: lanes now, only where below what GPU and slot can do.
        nvlinks_up: NVLinks that are up; None for a GPU that has none.
        counters_ns: by COUNTERS, time spent throttled since the driver was loaded.
    """

    reasons: int = 0
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    nvlinks_up: int | None = None
    counters_ns: tuple[int | None, ...] = (None,) * len(COUNTERS)


class Gauge:
    """One GPU for many glances."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """Learn what of the GPU does not change.

        Args:
            nvml: the binding, initialised.
            handle: of the GPU.
        """
        self._nvml = nvml
        self._handle = handle
        self._most_generation = self._try("nvmlDeviceGetMaxPcieLinkGeneration")
        self._most_width = self._try("nvmlDeviceGetMaxPcieLinkWidth")
        self._has_nvlink = nvml_calls.link_count(nvml, handle) > 0
        fields = [getattr(nvml, field, None) for _, field, _ in COUNTERS]
        answers = iter(self._values([field for field in fields if field is not None]))
        known = [None if field is None else next(answers) for field in fields]
        # Asked again are the fields that this GPU has; for the others the older call, where there is one.
        self._fields = [
            field if value is not None else None for field, value in zip(fields, known, strict=True)
        ]

    def read(self) -> Glance:
        """The GPU as it is now."""
        nvml, handle = self._nvml, self._handle
        try:
            bits = reason_bits(nvml, handle)
        except (nvml.NVMLError, AttributeError):
            bits = 0
        generation = self._try("nvmlDeviceGetCurrPcieLinkGeneration")
        width = self._try("nvmlDeviceGetCurrPcieLinkWidth")
        slow = _below(generation, self._most_generation) and not bits & _IDLE
        up = nvml_calls.active_links(nvml, handle) if self._has_nvlink else None
        return Glance(
            reasons=bits & sum(THROTTLING),
            sm_clock_mhz=self._try("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            temperature_c=self._try("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            power_mw=self._try("nvmlDeviceGetPowerUsage"),
            pcie_generation=generation if slow else None,
            pcie_width=width if _below(width, self._most_width) else None,
            nvlinks_up=None if up is None else len(up),
            counters_ns=self._counters(),
        )

    def _counters(self) -> tuple[int | None, ...]:
        answers = iter(self._values([field for field in self._fields if field is not None]))
        return tuple(
            next(answers, None) if field is not None else self._violation(policy)
            for field, (_, _, policy) in zip(self._fields, COUNTERS, strict=True)
        )

    def _values(self, fields: list[int]) -> list[int | None]:
        try:
            found = nvml_calls.field_values(self._nvml, self._handle, fields)
        except self._nvml.NVMLError:
            return [None] * len(fields)
        return [None if value is None else int(value) for value in found]

    def _violation(self, policy: str | None) -> int | None:
        if policy is None:
            return None
        try:
            status = self._nvml.nvmlDeviceGetViolationStatus(self._handle, getattr(self._nvml, policy))
        except self._nvml.NVMLError:
            return None
        return int(status.violationTime)

    def _try(self, name: str, *arguments: Any) -> int | None:
        try:
            return int(getattr(self._nvml, name)(self._handle, *arguments))
        except (self._nvml.NVMLError, AttributeError):
            return None


def open_gauge(identity: str | int) -> Gauge | None:
    """The gauge of a GPU; None where NVML is not to be had, which the environment then says.

    For workers only: it initialises NVML, and leaves it so until the process ends.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        return Gauge(pynvml, nvml_calls.find_handle(pynvml, identity))
    except Exception:  # each binding fails in its own way, and a run without readings is a run
        return None


def _below(now: int | None, most: int | None) -> bool:
    return now is not None and most is not None and 0 < now < most
