"""Health of GPUs and NICs before and after a run: NVML's documented answers, Hopper and Blackwell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pynvml
import pytest
from fake_nvml import BLACKWELL, HOPPER, install, machine, violation

from ncclbench.environment import collect, counters, health, nvml
from ncclbench.environment.counters import (
    complaints,
    factored,
    nic_complaints,
    nic_risen,
    read_counters,
    risen,
)
from ncclbench.environment.health import health_entry, read_health
from ncclbench.environment.throttle import COUNTER_WORDS, open_gauge

BUS = "00000000:19:00.0"
Gpu = dict[str, Any]


def changed(gpu: Gpu, fields: dict[Any, int] | None = None, **answers: Any) -> Gpu:
    return {**gpu, **answers, "fields": {**gpu["fields"], **(fields or {})}}


# The binding


def test_every_name_of_nvml_that_is_used_is_one_of_the_installed_binding() -> None:
    folder = Path(nvml.__file__).parent
    names: set[str] = set()
    for path in folder.glob("*.py"):
        text = path.read_text()
        names |= set(re.findall(r"\bnvml\.((?:NVML|nvml|c_nvml)\w+)", text))
        names |= set(re.findall(r'"((?:NVML_|nvmlDevice|nvmlSystem)[A-Za-z0-9_]+)"', text))
    # These are put together from a kind and a name.
    names |= {f"NVML_CLOCK_{kind}" for kind in ("SM", "MEM")}
    names |= {f"NVML_CLOCK_ID_APP_CLOCK_{which}" for which in ("TARGET", "DEFAULT")}
    names |= {f"NVML_MEMORY_ERROR_TYPE_{kind}" for kind in ("CORRECTED", "UNCORRECTED")}
    assert len(names) > 60
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []


def test_the_fake_has_no_function_and_takes_no_argument_that_the_binding_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = install(monkeypatch, HOPPER)
    with pytest.raises(AttributeError):
        fake.nvmlDeviceGetNvLinkRemotePciInfo_v2("GPU0", 0)
    with pytest.raises(TypeError):
        fake.nvmlDeviceGetNvLinkState("GPU0")
    with pytest.raises(pynvml.NVMLError, match="Not Supported"):
        fake.nvmlDeviceGetFanSpeed("GPU0")


def test_fields_come_in_one_call_each_with_its_own_fate(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, changed(HOPPER, {(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 7): 12}))
    wanted = [(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, link) for link in (6, 7)]
    values = nvml.field_values(fake, "GPU0", [*wanted, pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS])
    assert (values, fake.field_calls) == ([0, 12, None], 1)


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        ("DOUBLE", "dVal", 1.5),
        ("UNSIGNED_INT", "uiVal", 7),
        ("UNSIGNED_LONG", "ulVal", 1 << 33),
        ("UNSIGNED_LONG_LONG", "ullVal", 1 << 60),
        ("SIGNED_LONG_LONG", "sllVal", -5),
        ("SIGNED_INT", "siVal", -3),
        ("UNSIGNED_SHORT", "usVal", 9),
    ],
)
def test_a_field_is_read_by_its_type(
    kind: str, member: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = install(monkeypatch, HOPPER)
    answers = (pynvml.c_nvmlFieldValue_t * 1)()
    answers[0].valueType = getattr(pynvml, f"NVML_VALUE_TYPE_{kind}")
    setattr(answers[0].value, member, value)
    monkeypatch.setattr(type(fake), "nvmlDeviceGetFieldValues", lambda *_: answers)
    assert nvml.field_values(fake, "GPU0", [91]) == [value]


# Counters


def test_counters_of_a_hopper_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, HOPPER)
    found = read_counters(BUS)
    assert fake.open == 0
    assert found["nvlinks_up"] == 18
    assert (found["nvlink_replay"], found["nvlink_recovery"], found["nvlink_crc"]) == (0, 0, 0)
    assert (found["temperature_c"], found["memory_temperature_c"], found["power_w"]) == (31, 44, 69.871)
    assert found["throttled_us"]["software power cap"] == 0
    # Blackwell's counters are not Hopper's, and NVML counts no XIDs at all.
    assert found["nvlink_symbol_errors"] is None
    assert found["missing"]["nvlink_symbol_errors"] == "not counted by this GPU"
    assert "kernel's log" in found["missing"]["xid"]


def test_counters_of_a_blackwell_gpu_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS
    install(monkeypatch, changed(BLACKWELL, {(symbols, 3): 40, (symbols, 4): 2}))
    found = read_counters(BUS)
    assert found["nvlink_symbol_errors"] == 42
    assert found["nvlink_failed_recoveries"] == 0
    assert found["nvlink_replay"] is None
    assert {*found["throttled_us"]} == {*COUNTER_WORDS}


def test_a_gpu_without_nvlink_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, changed(HOPPER, {pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: 0}))
    found = read_counters(BUS)
    assert found["nvlinks_up"] == 0
    assert found["missing"]["nvlink_replay"] == "this GPU has no NVLink"


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
def test_nothing_can_be_read_and_why(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, HOPPER)

    def fail(*_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(type(fake), broken, fail)
    found = read_counters(BUS)
    assert set(found["missing"].values()) == {"GPU is lost"}
    assert all(found[key] is None for key in found["missing"])


@pytest.mark.parametrize(
    ("gpu", "field", "key", "word"),
    [
        (HOPPER, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, "nvlink_replay", "replay"),
        (BLACKWELL, pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, "nvlink_receive_errors", "receive"),
    ],
    ids=["Hopper", "Blackwell"],
)
def test_what_rose_is_told_and_what_stood_still_is_not(
    gpu: Gpu, field: int, key: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, gpu)
    before = read_counters(BUS)
    assert (risen(before, before), complaints(before, before)) == ({}, [])
    install(
        monkeypatch,
        changed(
            gpu,
            {(field, 5): 12, pynvml.NVML_FI_DEV_PERF_POLICY_POWER: 3_000_000},
            nvmlDeviceGetPcieReplayCounter=4,
            nvmlDeviceGetNvLinkState=lambda handle, link: int(link not in (2, 3)),
            nvmlDeviceGetCurrPcieLinkWidth=8,
            nvmlDeviceGetRemappedRows=(0, 1, 1, 0),
        ),
    )
    after = read_counters(BUS)
    assert risen(before, after) == {
        key: 12,
        "pcie_replay": 4,
        "rows_remapped_uncorrected": 1,
        "throttled_us": {"software power cap": 3000},
    }
    assert complaints(before, after) == [
        "memory rows remapped for uncorrected errors rose by 1",
        f"NVLink {word} errors rose by 12",
        "PCIe replays rose by 4",
        "NVLinks that are up fell from 18 to 16",
        "PCIe lanes fell from 16 to 8",
        "a memory row waits to be remapped",
    ]


def test_a_counter_that_started_anew_or_is_not_known_did_not_rise() -> None:
    assert risen({"pcie_replay": 40}, {"pcie_replay": 2}) == {}
    assert risen({"pcie_replay": None}, {"pcie_replay": 2}) == {}
    assert risen({}, {"pcie_replay": 2, "throttled_us": None}) == {}


def test_every_counter_that_can_rise_is_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, BLACKWELL)
    assert {*counters.ERRORS} <= {*read_counters(BUS)}


def test_errors_of_nics_are_told_and_drops_are_only_kept() -> None:
    before = {"mlx5_0/1": {"symbol_error": 1, "port_rcv_errors": 0}, "eth0": {"rx_dropped": 5}}
    after = {"mlx5_0/1": {"symbol_error": 4, "port_rcv_errors": 0}, "eth0": {"rx_dropped": 900}}
    rose = nic_risen(before, after)
    assert rose == {"mlx5_0/1": {"symbol_error": 3}, "eth0": {"rx_dropped": 895}}
    assert nic_complaints(rose) == ["mlx5_0/1: symbol_error rose by 3"]


# A run's entry


def environment(nhosts: int, per_host: int, device: str = "cuda") -> dict[str, Any]:
    ranks = [divmod(rank, per_host) for rank in range(nhosts * per_host)]
    return {
        "hosts": [{"name": f"node{host}"} for host in range(nhosts)],
        "common": {},
        "ranks": [
            {
                "rank": rank,
                "host": host,
                "local_rank": local,
                "device": f"cuda:{local}" if device == "cuda" else "cpu",
            }
            for rank, (host, local) in enumerate(ranks)
        ],
    }


def readings(monkeypatch: pytest.MonkeyPatch, count: int, gpu: Gpu = HOPPER) -> list[dict[str, Any]]:
    fakes = machine(gpu, count)
    install(monkeypatch, *fakes)
    return [
        {"gpu": read_counters(each["nvmlDeviceGetPciInfo"].busId), "nics": {"mlx5_0/1": {"link_downed": 0}}}
        for each in fakes
    ]


def test_a_problem_names_rank_host_and_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = readings(monkeypatch, 8), readings(monkeypatch, 8)
    after[5]["gpu"]["nvlink_replay"] = 12
    after[4]["nics"] = {"mlx5_0/1": {"link_downed": 1}}
    for rank in (1, 2, 3, 5, 6, 7):
        before[rank]["nics"] = after[rank]["nics"] = None
    entry = health_entry(0, environment(2, 4), before, after)
    assert entry["problems"] == [
        "rank 5 (node1, GPU 1): NVLink replay errors rose by 12",
        "node1, NIC mlx5_0/1: link_downed rose by 1",
    ]
    assert entry["rose"] == [
        {"rank": 5, "counters": {"nvlink_replay": 12}},
        {"host": "node1", "counters": {"mlx5_0/1": {"link_downed": 1}}},
    ]
    assert "missing" not in entry


def test_alike_gpus_are_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = health_entry(0, environment(1, 8), readings(monkeypatch, 8), None)
    assert entry["after"] is None
    gpus = entry["before"]["gpus"]
    assert gpus["common"]["nvlinks_up"] == 18
    assert gpus["ranks"] == [{}] * 8
    assert len(json.dumps(entry)) < 3000
    warmer = readings(monkeypatch, 2)
    warmer[1]["gpu"]["temperature_c"] = 80
    parts = factored([each["gpu"] for each in warmer])
    assert parts["ranks"] == [{"temperature_c": 31}, {"temperature_c": 80}]


def test_without_a_gpu_the_entry_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "why_no_gpu", lambda: "no NVIDIA GPU")
    mine = [read_health(local, "cpu") for local in range(2)]
    assert (mine[0]["gpu"], mine[1]["nics"]) == (None, None)
    entry = health_entry(1, environment(1, 2, "cpu"), mine, mine)
    assert entry["missing"] == "no NVIDIA GPU"
    assert entry["before"]["gpus"] is None
    assert entry["problems"] == []
    assert [*entry["before"]["nics"]] == ["node0"]


def test_a_rank_on_a_gpu_asks_nvml_for_the_one_that_torch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, *machine(HOPPER, 8))
    monkeypatch.setattr(health, "gpu_bus_id", lambda device: "00000000:39:00.0")
    assert read_health(2, "cuda:2")["gpu"]["nvlinks_up"] == 18
    assert fake.asked == "00000000:39:00.0"
    assert collect.gpu_bus_id("cpu") is None


# Glances


def test_a_glance_at_a_healthy_gpu_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, HOPPER)
    gauge = open_gauge(BUS)
    assert gauge is not None
    glance = gauge.read()
    assert (glance.reasons, glance.pcie_generation, glance.pcie_width) == (0, None, None)
    assert (glance.sm_clock_mhz, glance.temperature_c, glance.power_mw) == (345, 31, 69_871)
    assert glance.nvlinks_up == 18
    assert glance.counters_ns[0] == 0


def test_a_glance_at_a_throttled_and_narrowed_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    therm = pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN
    fake = install(
        monkeypatch,
        changed(
            BLACKWELL,
            {therm: 5_000},
            nvmlDeviceGetCurrPcieLinkGeneration=3,
            nvmlDeviceGetCurrPcieLinkWidth=4,
            nvmlDeviceGetNvLinkState=lambda handle, link: int(link != 9),
        ),
    )
    gauge = open_gauge(BUS)
    assert gauge is not None
    fake.field_calls = 0
    glance = gauge.read()
    assert (
        glance.reasons
        == pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    )
    assert (glance.pcie_generation, glance.pcie_width, glance.nvlinks_up) == (3, 4, 17)
    assert dict(zip(COUNTER_WORDS, glance.counters_ns, strict=True))["hardware thermal slowdown"] == 5_000


def test_an_idle_gpu_may_lower_the_generation_of_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, changed(HOPPER, nvmlDeviceGetCurrPcieLinkGeneration=1))
    gauge = open_gauge(BUS)
    assert gauge is not None
    assert gauge.read().pcie_generation is None


def test_a_gpu_without_the_fields_answers_the_older_call(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {pynvml.NVML_PERF_POLICY_POWER: 7_000, pynvml.NVML_PERF_POLICY_THERMAL: 9_000}
    older = changed(HOPPER, nvmlDeviceGetViolationStatus=lambda _, policy: violation(spent.get(policy, 0)))
    for field in (pynvml.NVML_FI_DEV_PERF_POLICY_POWER, pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL):
        del older["fields"][field]
    install(monkeypatch, older)
    gauge = open_gauge(BUS)
    assert gauge is not None
    counted = dict(zip(COUNTER_WORDS, gauge.read().counters_ns, strict=True))
    assert (counted["software power cap"], counted["thermal limit"]) == (7_000, 9_000)
    assert counted["hardware power brake"] is None


def test_a_gpu_that_answers_nothing_is_still_a_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ("nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo")
    install(monkeypatch, {key: HOPPER[key] for key in known})
    gauge = open_gauge(BUS)
    assert gauge is not None
    glance = gauge.read()
    assert (glance.reasons, glance.sm_clock_mhz, glance.nvlinks_up) == (0, None, None)
    assert set(glance.counters_ns) == {None}


def test_without_nvml_there_is_no_gauge(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, HOPPER)
    assert open_gauge("00000000:FF:00.0") is None
