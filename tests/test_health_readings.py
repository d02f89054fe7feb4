"""Readings between blocks: when they are taken, what they add up to, how they travel, what they mark."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import pytest
from fake_device import FakeDevice
from numpy.typing import NDArray
from report_fixtures import make_case, make_run

from ncclbench.environment.throttle import COUNTER_WORDS, THROTTLING, Glance
from ncclbench.plan.model import Arm, Case
from ncclbench.report.marks import row_marks
from ncclbench.stats.rows import run_rows
from ncclbench.stats.summary import summary_row
from ncclbench.stats.throttled import held_back
from ncclbench.store.lines import decode_line, encode_unit
from ncclbench.store.model import Run, Unit, UnitHealth
from ncclbench.worker.loop import Samples
from ncclbench.worker.readings import LENGTH, Readings, joined, pack, unpack
from ncclbench.worker.units import ArmVisits, gather_units
from ncclbench.worker.visit import Visit

POWER, HOT = "software power cap", "hardware thermal slowdown"
MS = 1_000_000


def glance(power_ns: int = 0, **fields: Any) -> Glance:
    counters = tuple(power_ns if word == POWER else 0 for word in COUNTER_WORDS)
    return Glance(
        **{"sm_clock_mhz": 1980, "temperature_c": 50, "power_mw": 400_000} | fields, counters_ns=counters
    )


def device_with(*glances: Glance | None, read_ns: int = 0) -> FakeDevice:
    device = FakeDevice()
    device.glances, device.read_ns = [*glances], read_ns
    return device


# When


def test_each_visit_gets_its_reading_and_counters_since_the_one_before() -> None:
    device = device_with(glance(1_000_000), glance(3_000_000), glance(3_000_000, temperature_c=61))
    readings = Readings(device)
    device.host_ns += 50 * MS
    first = readings.after_visit()
    device.host_ns += 20 * MS
    second = readings.after_visit()
    assert first is not None
    assert second is not None
    assert (first.over_us, first.throttled_us) == (50_000.0, {POWER: 2000.0})
    assert (second.over_us, second.throttled_us, second.temperature_c) == (20_000.0, {}, 61)
    assert (first.visits, second.visits) == (1, 1)


@pytest.mark.parametrize(("read_us", "visit_us"), [(1, 1000), (50, 1000), (500, 2000), (20_000, 1000)])
def test_readings_never_take_more_than_one_percent(read_us: int, visit_us: int) -> None:
    device = device_with(*[glance()] * 1001, read_ns=read_us * 1000)
    readings = Readings(device)
    begun_ns = device.host_ns
    taken = []
    for _ in range(1000):
        device.host_ns += visit_us * 1000
        taken.append(readings.after_visit())
    spent_us = sum(health.read_us for health in taken if health is not None)
    # The very first one may come at once.
    assert spent_us - read_us <= 0.01 * (device.host_ns - begun_ns) / 1000
    assert any(taken)
    covered = sum(health.visits for health in taken if health is not None)
    assert covered > 1000 - 1 - 100 * read_us / visit_us
    if read_us * 100 <= visit_us:
        assert all(taken)


def test_a_reading_that_was_left_out_is_covered_by_the_next() -> None:
    device = device_with(glance(0), glance(1_000), glance(9_000), read_ns=MS)
    readings = Readings(device)
    device.host_ns += 10 * MS
    assert readings.after_visit() is not None
    device.host_ns += 10 * MS
    assert readings.after_visit() is None
    device.host_ns += 200 * MS
    late = readings.after_visit()
    assert late is not None
    assert (late.visits, late.over_us, late.throttled_us) == (2, 210_000.0, {POWER: 8.0})


def test_a_device_that_says_nothing_is_asked_once() -> None:
    device = FakeDevice()
    readings = Readings(device)
    assert [readings.after_visit() for _ in range(3)] == [None] * 3
    assert device.log == ["read health"]


def test_a_reason_whose_counter_stood_still_is_kept_with_no_time() -> None:
    """So that it is told from a reason that the GPU has no counter for."""
    (bit,) = [bit for bit, word in THROTTLING.items() if word == POWER]
    readings = Readings(device_with(glance(5_000, reasons=bit), glance(5_000, reasons=bit)))
    health = readings.after_visit()
    assert health is not None
    assert (health.reasons, health.throttled_us) == ((POWER,), {POWER: 0.0})
    assert unpack(pack(health)) == health


def test_a_counter_that_started_anew_spent_nothing() -> None:
    device = device_with(glance(9_000), glance(100), glance(300))
    readings = Readings(device)
    assert readings.after_visit().throttled_us == {}  # type: ignore[union-attr]
    device.host_ns += MS
    assert readings.after_visit().throttled_us == {POWER: 0.2}  # type: ignore[union-attr]


# What they add up to, and how they travel

COOL = UnitHealth(
    over_us=1000.0, read_us=5.0, sm_clock_mhz=1980, temperature_c=50, power_w=400.0, nvlinks_up=18
)
WARM = UnitHealth(
    over_us=3000.0,
    read_us=7.5,
    visits=2,
    reasons=(POWER, HOT),
    throttled_us={POWER: 120.0, HOT: 4.25},
    sm_clock_mhz=1200,
    temperature_c=88,
    power_w=699.125,
    pcie_generation=3,
    pcie_width=8,
    nvlinks_up=17,
)


def test_the_readings_of_a_unit_are_one() -> None:
    both = joined(COOL, WARM)
    assert both == joined(WARM, COOL)
    assert both == UnitHealth(
        over_us=4000.0,
        read_us=12.5,
        readings=2,
        visits=3,
        reasons=WARM.reasons,
        throttled_us=WARM.throttled_us,
        sm_clock_mhz=1200,
        temperature_c=88,
        power_w=699.125,
        pcie_generation=3,
        pcie_width=8,
        nvlinks_up=17,
    )
    assert joined(None, COOL) is joined(COOL, None) is COOL
    assert joined(None, None) is None


@pytest.mark.parametrize(
    "health", [COOL, WARM, joined(COOL, WARM), None, UnitHealth(over_us=0.0, read_us=0.0)]
)
def test_readings_travel_as_numbers(health: UnitHealth | None) -> None:
    numbers = pack(health)
    assert len(numbers) == LENGTH
    assert unpack(np.array(numbers, dtype=np.int64)) == health


class Ranks:
    """The control plane of rank 0 of two, or of rank 1 whose numbers it then gathers."""

    clock_offset_ns = 0

    def __init__(self, other: NDArray[np.int64] | None = None) -> None:
        self.other = other
        self.sent: NDArray[np.int64] | None = None

    def gather_array(self, array: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
        self.sent = array
        return None if self.other is None else [array, self.other]


def visits(health: UnitHealth | None) -> list[ArmVisits]:
    times = np.arange(1, 5, dtype=np.int64) * 1000
    visit = Visit(Samples(start=times, launch=times, device=times, total=times), 1, 0)
    return [ArmVisits("a", [visit], [0], None, health), ArmVisits("b", [visit, visit], [1, 2], None, None)]


def gathered(mine: UnitHealth | None, others: UnitHealth | None) -> list[Unit]:
    case = make_case("all_reduce", 8)
    one: Any = Ranks()
    assert gather_units(case, 0, 0, True, visits(others), one) == []
    zero: Any = Ranks(one.sent)
    return gather_units(case, 0, 0, True, visits(mine), zero)


def test_health_reaches_rank_0_beside_the_samples() -> None:
    first, second = gathered(None, WARM)
    assert first.health == (None, WARM)
    assert second.health is None
    assert first.total_us.tolist() == [[1.0, 2.0, 3.0, 4.0]] * 2
    assert second.total_us.shape == (2, 8)
    assert first.wrong == (0, 0)


def test_a_line_without_readings_is_as_it_was_and_one_with_them_stays_small() -> None:
    plain, _ = gathered(None, None)
    assert b"health" not in encode_unit(plain)
    healthy, _ = gathered(COOL, COOL)
    grown = len(encode_unit(healthy)) - len(encode_unit(plain))
    assert grown / 2 < 130
    lines = [decode_line(text) for text in encode_unit(healthy).splitlines()]
    assert [line.health for line in lines] == [COOL, COOL]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "said", ['{"over_us":-1,"read_us":1}', '{"over_us":1}', '{"over_us":1,"read_us":1,"reasons":7}', "[]"]
)
def test_a_line_whose_health_is_none_is_refused(said: str) -> None:
    (line, _) = encode_unit(gathered(COOL, COOL)[0]).splitlines()
    fields = json.loads(line)
    text = json.dumps(fields | {"health": json.loads(said)}).encode()
    with pytest.raises(ValueError, match=r"\$\.health"):
        decode_line(text)


# Which rows they mark

CASE: Case = make_case("all_reduce", 1 << 20)


def unit_with(*health: UnitHealth | None) -> Unit:
    (unit,) = make_run(
        ops=["all_reduce"], sizes=[8], modes=["isolated"], arms=["gloo"], epochs=1
    ).units.values()
    return replace(unit[0], health=health)


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (COOL, []),
        (UnitHealth(over_us=1e4, read_us=1.0, reasons=(POWER,)), [POWER]),
        (UnitHealth(over_us=1e4, read_us=1.0, throttled_us={POWER: 150.0}), [POWER]),
        (UnitHealth(over_us=1e4, read_us=1.0, throttled_us={POWER: 50.0}), []),
        (UnitHealth(over_us=1e4, read_us=1.0, reasons=(HOT,), throttled_us={HOT: 1e4}), [HOT]),
        # The moment of the reading is not what a row is held against where the time was counted.
        (UnitHealth(over_us=1e4, read_us=1.0, reasons=(POWER,), throttled_us={POWER: 50.0}), []),
        (UnitHealth(over_us=1e4, read_us=1.0, reasons=(POWER,), throttled_us={POWER: 0.0}), []),
        (UnitHealth(over_us=1e4, read_us=1.0, reasons=(POWER, HOT), throttled_us={POWER: 50.0}), [HOT]),
        (UnitHealth(over_us=1e4, read_us=1.0, pcie_generation=3), ["PCIe below its generation"]),
        (UnitHealth(over_us=1e4, read_us=1.0, pcie_width=8), ["PCIe below its width"]),
        (UnitHealth(over_us=1e4, read_us=1.0, nvlinks_up=17), ["NVLink down"]),
        (UnitHealth(over_us=1e4, read_us=1.0, nvlinks_up=18), []),
    ],
)
def test_what_held_a_rank_back_is_on_the_row(health: UnitHealth, words: list[str]) -> None:
    ranks = [1] if words else []
    assert held_back([unit_with(COOL, health)]) == (words, ranks)


def test_rows_say_nothing_where_nothing_was_read() -> None:
    quiet = unit_with()
    assert held_back([replace(quiet, health=None)]) is None
    row = summary_row(
        CASE, Arm("gloo", "gloo"), [replace(quiet, health=None)], implementation=None, statistic="p25"
    )
    assert (row["throttled"], row["throttled_ranks"]) == (None, None)


def test_the_reason_that_touched_most_ranks_comes_first() -> None:
    slow = UnitHealth(over_us=1e4, read_us=1.0, reasons=(HOT, POWER))
    capped = UnitHealth(over_us=1e4, read_us=1.0, reasons=(POWER,))
    units = [unit_with(COOL, slow), unit_with(None, None), unit_with(capped, capped)]
    assert held_back(units) == ([POWER, HOT], [0, 1])


def throttled_run() -> Run:
    run = make_run(ops=["all_reduce"], sizes=[8, 1024], modes=["isolated"], arms=["gloo"], epochs=2)
    key = next(iter(run.units))
    run.units[key] = [replace(unit, health=(COOL, WARM)) for unit in run.units[key]]
    return run


def test_a_throttled_row_is_marked_with_what_to_do() -> None:
    touched, other = run_rows(throttled_run())
    (mark,) = [mark for mark in row_marks(touched, compared=False) if mark.word == "throttled"]
    assert touched["throttled_ranks"] == [1]
    assert "on rank 1" in mark.why
    assert mark.step
    assert not [mark for mark in row_marks(other, compared=False) if mark.word == "throttled"]


def test_harmless_reasons_are_no_throttling() -> None:
    harmless = (
        pynvml.nvmlClocksEventReasonGpuIdle
        | pynvml.nvmlClocksEventReasonApplicationsClocksSetting
        | pynvml.nvmlClocksEventReasonSyncBoost
        | pynvml.nvmlClocksEventReasonDisplayClockSetting
    )
    assert sum(THROTTLING) & harmless == 0
    assert sum(THROTTLING) | harmless == pynvml.nvmlClocksThrottleReasonAll


# A whole run, with a CPU that says what a GPU would say

SCRIPT = """
import sys
from ncclbench.environment.throttle import COUNTER_WORDS, Glance
from ncclbench.worker.device import CpuDevice

said = 0

def read_health(self):
    global said
    said += 1
    return Glance(reasons=0x4, sm_clock_mhz=1410, counters_ns=(said * 1_000_000_000,) * len(COUNTER_WORDS))

CpuDevice.read_health = read_health

from ncclbench.environment import health

counted = 0

def read_nic_counters():
    global counted
    counted += 1
    return {"mlx5_0/1": {"symbol_error": counted}}

health.read_nic_counters = read_nic_counters
from ncclbench.cli import main
sys.argv = ["ncclbench", *sys.argv[1:]]
main()
"""


def test_a_sweep_keeps_what_the_devices_say(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["sweep", "--sizes", "8", "--modes", "isolated", "--epochs", "2", "--epoch-kind", "process"]
    options += ["--out", str(out), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert POWER in row["throttled"]
    assert row["throttled_ranks"] == [0, 1]
    lines = [json.loads(text) for text in (out / "samples.jsonl").read_text().splitlines()]
    samples = [line for line in lines if line["type"] == "samples"]
    assert len(samples) == 4
    for line in samples:
        health = line["health"]
        assert health["reasons"] == [POWER]
        assert health["sm_clock_mhz"] == 1410
        assert health["over_us"] > 0
        assert health["throttled_us"][POWER] == pytest.approx(1e6 * health.get("readings", 1))
    assert "throttled" in (out / "report.html").read_text()
    # One entry for the attempt, though each of its launches read the counters; and a line at the end.
    (entry,) = json.loads((out / "run.json").read_text())["health"]
    (problem,) = entry["problems"]
    assert problem.endswith("NIC mlx5_0/1: symbol_error rose by 1")
    assert problem in done.stderr


def test_a_sweep_without_a_gpu_says_why_there_is_no_health(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = [
        "--sizes",
        "8",
        "--modes",
        "isolated",
        "--epochs",
        "1",
        "--backends",
        "gloo",
        "--out",
        str(out),
    ]
    command = [sys.executable, "-m", "ncclbench", "sweep", *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    meta = json.loads((out / "run.json").read_text())
    (entry,) = meta["health"]
    assert entry["missing"] in ("no NVIDIA GPU", "the run uses no GPU")
    assert entry["after"]["gpus"] is None
    assert entry["problems"] == []
    assert meta["environment"]["hosts"][0]["topology"]["gpus_missing"] == entry["missing"]
    (row,) = json.loads(done.stdout)["rows"]
    assert row["throttled"] is None
    assert '"health"' not in (out / "samples.jsonl").read_text()
