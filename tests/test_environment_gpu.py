"""GPUs counted without CUDA, and read through NVML: its documented answers, Hopper and Blackwell."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ncclbench.environment.collect import merge
from ncclbench.environment.gpu import count_gpus, read_gpu

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER_UUID = "GPU-aaaaf937-d72c-4106-c12f-20bd9faed9f6"


# Counting GPUs


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("2, 0", 2),
        ("0,1,2,3", 4),
        ("1,-1,2", 1),
        ("0,9,1", 1),
        ("NoDevFiles", 0),
        ("0,0", 0),
        (f"{UUID},{OTHER_UUID}", 2),
        ("GPU-8932f937", 1),
        ("MIG-b3a5d3ee-c2a6-5ac8-9d8b-7a3c62a1f9a1,MIG-c3a5d3ee-c2a6-5ac8-9d8b-7a3c62a1f9a1", 1),
        (f"MIG-{UUID}/1/0", 1),
    ],
)
def test_visible_gpus_are_counted_as_cuda_does(visible: str | None, count: int, tmp_path: Path) -> None:
    for bus in range(4):
        (tmp_path / f"driver/0000:0{bus}:00.0").mkdir(parents=True)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert count_gpus(environ, tmp_path / "driver", tmp_path / "dev") == count


def test_device_files_count_where_the_driver_lists_nothing_or_too_much(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / "dev" / name).touch()
    assert count_gpus({}, tmp_path / "driver", tmp_path / "dev") == 2
    for bus in range(8):
        (tmp_path / f"driver/0000:0{bus}:00.0").mkdir(parents=True)
    assert count_gpus({}, tmp_path / "driver", tmp_path / "dev") == 2
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path / "none", tmp_path / "none") == 0


def test_counting_starts_neither_torch_nor_nvml() -> None:
    script = (
        "import sys; from ncclbench.environment.gpu import count_gpus; count_gpus()\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert not {'torch', 'pynvml'} & set(sys.modules)\n"
        "assert 'libcuda' not in maps and 'libnvidia-ml' not in maps\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent.parent, timeout=30)


# NVML

HOPPER = {
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetUUID": UUID,
    "nvmlDeviceGetVbiosVersion": "96.00.A5.00.01",
    "nvmlDeviceGetPciInfo": types.SimpleNamespace(busId="00000000:19:00.0"),
    "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=85520809984, used=1048576),
    "clocks": {("SM", "now"): 345, ("SM", "max"): 1980, ("SM", 1): 1980, ("SM", 2): 1980},
    "memory_clocks": {"now": 2619, "max": 2619},
    "nvmlDeviceGetPowerUsage": 69_871,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetTemperature": 31,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetPersistenceMode": 1,
}
# Application clocks went with this generation: NVML answers "Not Supported".
BLACKWELL = {
    **HOPPER,
    "nvmlDeviceGetName": "NVIDIA B200",
    "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=191503532032, used=0),
    "clocks": {("SM", "now"): 1965, ("SM", "max"): 1965},
    "memory_clocks": {"now": 3996, "max": 3996},
    "nvmlDeviceGetPowerUsage": 998_204,
    "nvmlDeviceGetEnforcedPowerLimit": 1_000_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 1_000_000,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x40 | 0x1000,
}


class FakeNvml(types.ModuleType):
    """Stands in for pynvml: returns what NVML documents; what it lacks is "Not Supported"."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = "SM", "MEM", 0
    NVML_CLOCK_ID_APP_CLOCK_TARGET, NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 1, 2

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__("pynvml")
        self.answers = answers
        self.open = 0
        self.asked: Any = None

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def _handle(self, identity: Any) -> str:
        self.asked = identity
        if identity == "GPU-gone":
            raise self.NVMLError("Not Found")
        return "handle"

    nvmlDeviceGetHandleByIndex = nvmlDeviceGetHandleByUUID = nvmlDeviceGetHandleByPciBusId = _handle

    def nvmlDeviceGetClockInfo(self, handle: str, kind: str) -> int:
        return self._clock(kind, "now")

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: str) -> int:
        return self._clock(kind, "max")

    def nvmlDeviceGetClock(self, handle: str, kind: str, which: int) -> int:
        return self._clock(kind, which)

    def _clock(self, kind: str, which: str | int) -> int:
        table = {("MEM", name): value for name, value in self.answers["memory_clocks"].items()}
        table |= self.answers["clocks"]
        if (kind, which) not in table:
            raise self.NVMLError("Not Supported")
        return int(table[kind, which])

    def __getattr__(self, name: str) -> Any:
        def answer(handle: str, *rest: Any) -> Any:
            assert handle == "handle"
            if name not in self.answers:
                raise self.NVMLError("Not Supported")
            return self.answers[name]

        if name.startswith("nvmlDevice"):
            return answer
        raise AttributeError(name)


def nvml(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> FakeNvml:
    fake = FakeNvml(answers)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_a_hopper_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = nvml(monkeypatch, HOPPER)
    gpu = read_gpu("00000000:19:00.0")
    assert gpu == {
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": UUID,
        "pci_bus_id": "00000000:19:00.0",
        "driver": "580.95.05",
        "vbios": "96.00.A5.00.01",
        "memory_total_bytes": 85520809984,
        "memory_used_bytes": 1048576,
        "sm_clock_mhz": 345,
        "sm_clock_max_mhz": 1980,
        "sm_clock_set_mhz": 1980,
        "sm_clock_default_mhz": 1980,
        "memory_clock_mhz": 2619,
        "memory_clock_max_mhz": 2619,
        "power_w": 69.871,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "temperature_c": 31,
        "throttle_reasons": ["gpu idle"],
        "ecc": True,
        "mig": False,
        "persistence": True,
        "missing": {},
    }
    assert (fake.asked, fake.open) == ("00000000:19:00.0", 0)


def test_a_blackwell_gpu_tells_less_and_the_reason_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, BLACKWELL)
    gpu = read_gpu(UUID)
    assert gpu["name"] == "NVIDIA B200"
    assert gpu["power_w"] == pytest.approx(998.204)
    assert gpu["throttle_reasons"] == ["software power cap", "hardware thermal slowdown", "reason 0x1000"]
    assert gpu["sm_clock_set_mhz"] is None
    assert gpu["missing"] == dict.fromkeys(("sm_clock_set_mhz", "sm_clock_default_mhz"), "Not Supported")


def test_an_older_driver_has_the_throttle_reasons_under_their_old_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {**HOPPER, "nvmlDeviceGetCurrentClocksThrottleReasons": 0x8}
    del answers["nvmlDeviceGetCurrentClocksEventReasons"]
    nvml(monkeypatch, answers)
    assert read_gpu(0)["throttle_reasons"] == ["hardware slowdown"]


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = nvml(monkeypatch, HOPPER)
    gpu = read_gpu("GPU-gone")
    assert gpu["name"] is None
    assert set(gpu["missing"].values()) == {"Not Found"}
    assert set(gpu["missing"]) == set(gpu) - {"missing"}
    assert fake.open == 0


# Ranks with GPUs


def test_gpus_differ_by_what_they_are_not_by_which_or_how_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch, HOPPER)
    ranks = [
        {"rank": n, "gpu": {**read_gpu(0), "uuid": f"GPU-{n}", "temperature_c": 30 + n}} for n in range(2)
    ]
    descriptions = [{"host": {"name": "n0", "boot_id": "1"}, "rank": rank} for rank in ranks]
    environment = merge(descriptions)
    assert environment["differences"] == []
    assert environment["common"]["gpu"]["name"] == "NVIDIA H100 80GB HBM3"
    assert environment["ranks"][1]["gpu"]["uuid"] == "GPU-1"
    ranks[1]["gpu"]["name"] = "NVIDIA H200"
    assert [entry["what"] for entry in merge(descriptions)["differences"]] == ["gpu.name"]
