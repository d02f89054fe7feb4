"""Stands in for pynvml: scripted answers behind the installed binding's own names, signatures and errors.

Whatever is not scripted is "Not Supported". A function, constant or structure that the installed binding
does not have is not here either, and a call that its signature does not take fails, so that the fake
cannot drift away from the real module.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml as real
import pytest

# The largest NVLink number plus one of each generation.
HOPPER_LINKS, BLACKWELL_LINKS = 18, 18

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


def pci(bus_id: str) -> Any:
    return real.nvmlPciInfo_t(busId=bus_id.encode())


def memory(total: int, used: int) -> Any:
    return types.SimpleNamespace(total=total, used=used)


def violation(nanoseconds: int) -> Any:
    return real.c_nvmlViolationTime_t(referenceTime=1_700_000_000_000_000, violationTime=nanoseconds)


def clocks(now: dict[str, int], most: dict[str, int], set_to: dict[int, int]) -> dict[str, Any]:
    """Answers about clocks; ``set_to`` by NVML_CLOCK_ID, those of application clocks may be absent."""
    names = {real.NVML_CLOCK_SM: "SM", real.NVML_CLOCK_MEM: "MEM"}

    def of_id(handle: Any, kind: int, which: int) -> int:
        if which not in set_to:
            raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
        return set_to[which]

    return {
        "nvmlDeviceGetClockInfo": lambda handle, kind: now[names[kind]],
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: most[names[kind]],
        "nvmlDeviceGetClock": of_id,
    }


# What NVML answers on an H100 SXM under driver 580 (nvml.h; the fields that are left out are not supported).
HOPPER: dict[str, Any] = {
    "nvmlSystemGetDriverVersion": "580.95.05",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetUUID": UUID,
    "nvmlDeviceGetSerial": "1654922001234",
    "nvmlDeviceGetVbiosVersion": "96.00.A5.00.01",
    "nvmlDeviceGetPciInfo": pci("00000000:19:00.0"),
    "nvmlDeviceGetMemoryInfo": memory(85520809984, 1048576),
    **clocks(
        {"SM": 345, "MEM": 2619},
        {"SM": 1980, "MEM": 2619},
        {real.NVML_CLOCK_ID_APP_CLOCK_TARGET: 1980, real.NVML_CLOCK_ID_APP_CLOCK_DEFAULT: 1980},
    ),
    "nvmlDeviceGetPowerUsage": 69_871,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetTemperature": 31,
    "nvmlDeviceGetCurrentClocksEventReasons": real.nvmlClocksEventReasonGpuIdle,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPcieReplayCounter": 0,
    "nvmlDeviceGetTotalEccErrors": 0,
    # Corrected, uncorrected, pending, failure.
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
    "nvmlDeviceGetNvLinkState": lambda handle, link: int(link < HOPPER_LINKS),
    "nvmlDeviceGetNvLinkVersion": real.NVML_NVLINK_VERSION_4_0,
    "nvmlDeviceGetNvLinkRemoteDeviceType": real.NVML_NVLINK_DEVICE_TYPE_SWITCH,
    "nvmlDeviceGetTopologyCommonAncestor": real.NVML_TOPOLOGY_NODE,
    "nvmlDeviceGetP2PStatus": real.NVML_P2P_STATUS_OK,
    "nvmlDeviceGetViolationStatus": lambda handle, policy: violation(0),
    "fields": {
        real.NVML_FI_DEV_NVLINK_LINK_COUNT: HOPPER_LINKS,
        real.NVML_FI_DEV_NVLINK_GET_SPEED: 26_562,
        real.NVML_FI_DEV_MEMORY_TEMP: 44,
        real.NVML_FI_DEV_PERF_POLICY_POWER: 0,
        real.NVML_FI_DEV_PERF_POLICY_THERMAL: 0,
        real.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: 0,
        real.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY: 0,
        real.NVML_FI_DEV_NVLINK_ERROR_DL_CRC: 0,
    },
}

_OF_HOPPER_ONLY = (
    real.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    real.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    real.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
)
_OF_BLACKWELL_ONLY = (
    real.NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
    real.NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
    real.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS,
    real.NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS,
    real.NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
    real.NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS,
    real.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
    real.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
    real.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
    real.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
)

# A B200: no application clocks, NVLink 5 with counters of its own, and the newer counters of throttling.
BLACKWELL: dict[str, Any] = {
    **HOPPER,
    "nvmlDeviceGetName": "NVIDIA B200",
    "nvmlDeviceGetMemoryInfo": memory(191503532032, 0),
    **clocks({"SM": 1965, "MEM": 3996}, {"SM": 1965, "MEM": 3996}, {}),
    "nvmlDeviceGetPowerUsage": 998_204,
    "nvmlDeviceGetEnforcedPowerLimit": 1_000_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 1_000_000,
    "nvmlDeviceGetCurrentClocksEventReasons": real.nvmlClocksEventReasonSwPowerCap
    | real.nvmlClocksEventReasonHwThermalSlowdown
    | 0x1000,
    "nvmlDeviceGetNvLinkVersion": real.NVML_NVLINK_VERSION_5_0,
    "fields": {
        **{field: value for field, value in HOPPER["fields"].items() if field not in _OF_HOPPER_ONLY},
        **dict.fromkeys(_OF_BLACKWELL_ONLY, 0),
        real.NVML_FI_DEV_NVLINK_GET_SPEED: 53_125,
        real.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: 0,
        real.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: 0,
        real.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: 0,
    },
}


class FakeNvml(types.ModuleType):
    """A machine of GPUs, each given by its answers: by function the value, a callable, or an error code.

    ``fields`` holds values by field, or by (field, link); a field without its link answers for all links.
    Handles are "GPU0", "GPU1" ... Names that were used are collected in ``used``.
    """

    def __init__(self, *gpus: Mapping[str, Any]) -> None:
        super().__init__("pynvml")
        self.gpus = [dict(gpu) for gpu in gpus]
        self.open = 0
        self.used: set[str] = set()
        self.asked: Any = None
        self.field_calls = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self.asked = index
        return f"GPU{index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return self._found(uuid, lambda gpu: gpu["nvmlDeviceGetUUID"])

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        return self._found(bus_id, lambda gpu: gpu["nvmlDeviceGetPciInfo"].busId)

    def _found(self, identity: str, name: Callable[[dict[str, Any]], str]) -> str:
        self.asked = identity
        for index, gpu in enumerate(self.gpus):
            if name(gpu) == identity:
                return f"GPU{index}"
        raise real.NVMLError(real.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetFieldValues(self, handle: str, fieldIds: Sequence[Any]) -> Any:
        self.field_calls += 1
        fields = self._gpu(handle).get("fields", {})
        values = (real.c_nvmlFieldValue_t * len(fieldIds))()
        for value, wanted in zip(values, fieldIds, strict=True):
            field = wanted[0] if isinstance(wanted, tuple) else wanted
            assert 0 < field < real.NVML_FI_MAX
            answer = fields.get(wanted, fields.get(field))
            value.fieldId, value.valueType = field, real.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            if answer is None:
                value.nvmlReturn = real.NVML_ERROR_NOT_SUPPORTED
            else:
                value.value.ullVal = answer
        return values

    def nvmlDeviceGetGpuFabricInfoV(self, device: str, gpuFabricInfo: Any) -> int:
        info = ctypes.cast(gpuFabricInfo, ctypes.POINTER(real.c_nvmlGpuFabricInfo_v2_t)).contents
        fabric = self._gpu(device).get("fabric")
        if fabric is None:
            raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
        info.state, info.cliqueId = real.NVML_GPU_FABRIC_STATE_COMPLETED, fabric["clique"]
        info.clusterUuid[:] = fabric["cluster"]
        return int(real.NVML_SUCCESS)

    def _gpu(self, handle: Any) -> dict[str, Any]:
        return self.gpus[int(str(handle).removeprefix("GPU"))]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            types.ModuleType.__getattribute__(self, "used").add(name)
            found = getattr(real, name)  # AttributeError: the binding has no such function
            if inspect.isfunction(found):
                return self._call(name, inspect.signature(found))
            return found
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.used.add(name)
        return getattr(real, name)

    def _call(self, name: str, signature: inspect.Signature) -> Callable[..., Any]:
        own = type(self).__dict__.get(name)

        def call(*arguments: Any) -> Any:
            signature.bind(*arguments)
            if own is not None:
                return own(self, *arguments)
            gpu = self._gpu(arguments[0]) if arguments else self.gpus[0]
            answer = gpu.get(name)
            if answer is None:
                raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)
            return answer(*arguments) if callable(answer) else answer

        return call


def install(monkeypatch: pytest.MonkeyPatch, *gpus: Mapping[str, Any]) -> FakeNvml:
    """What ``import pynvml`` finds from now on."""
    fake = FakeNvml(*gpus)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def machine(gpu: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Several of one GPU, each with an identity of its own."""
    return [
        {
            **gpu,
            "nvmlDeviceGetUUID": f"GPU-{index}",
            "nvmlDeviceGetSerial": f"165492200{index:04}",
            "nvmlDeviceGetPciInfo": pci(f"00000000:{0x19 + 16 * index:02X}:00.0"),
        }
        for index in range(count)
    ]
