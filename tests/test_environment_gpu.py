"""GPUs counted without CUDA, and read through NVML: its documented answers, Hopper and Blackwell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_nvml import BLACKWELL, HOPPER, UUID, install

from ncclbench.environment.collect import merge
from ncclbench.environment.gpu import count_gpus, read_gpu

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


def test_a_hopper_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, HOPPER)
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
        "serial": "1654922001234",
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlinks": 18,
        "nvlinks_up": 18,
        "nvlink_version": "4.0",
        "nvlink_MBs": 26_562,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "row_remap_pending": False,
        "row_remap_failed": False,
        "retired_pages_pending": None,
        # A GPU that remaps rows retires no pages.
        "missing": {"retired_pages_pending": "Not Supported"},
    }
    assert (fake.asked, fake.open) == ("00000000:19:00.0", 0)


def test_a_blackwell_gpu_tells_less_and_the_reason_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, BLACKWELL)
    gpu = read_gpu(UUID)
    assert gpu["name"] == "NVIDIA B200"
    assert gpu["power_w"] == pytest.approx(998.204)
    assert gpu["throttle_reasons"] == ["software power cap", "hardware thermal slowdown", "reason 0x1000"]
    assert gpu["sm_clock_set_mhz"] is None
    assert (gpu["nvlinks_up"], gpu["nvlink_version"], gpu["nvlink_MBs"]) == (18, "5.0", 53_125)
    absent = ("sm_clock_set_mhz", "sm_clock_default_mhz", "retired_pages_pending")
    assert gpu["missing"] == dict.fromkeys(absent, "Not Supported")


def test_an_older_driver_has_the_throttle_reasons_under_their_old_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {**HOPPER, "nvmlDeviceGetCurrentClocksThrottleReasons": 0x8}
    del answers["nvmlDeviceGetCurrentClocksEventReasons"]
    install(monkeypatch, answers)
    assert read_gpu(0)["throttle_reasons"] == ["hardware slowdown"]


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, HOPPER)
    gpu = read_gpu("GPU-gone")
    assert gpu["name"] is None
    assert set(gpu["missing"].values()) == {"Not Found"}
    assert set(gpu["missing"]) == set(gpu) - {"missing"}
    assert fake.open == 0


# Ranks with GPUs


def test_gpus_differ_by_what_they_are_not_by_which_or_how_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, HOPPER)
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
