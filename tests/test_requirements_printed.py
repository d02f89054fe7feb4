"""Printed means against bounds: what their digits leave open, how near is too near, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importing import make_printed

from ncclbench.hardware.judging import Judged, judge_requirements
from ncclbench.hardware.machine import Machine
from ncclbench.hardware.requirements import parse_requirement
from ncclbench.importing import read_file
from ncclbench.stats.imported import imported_row

GIB = 1 << 30
HEADER = "# size count type redop root time algbw busbw #wrong\n"


def judged(requirement: str, **printed: Any) -> Judged:
    row = imported_row(make_printed(GIB, **{"time_us": 100.0, **printed}), {})
    (found,) = judge_requirements([row], Machine(), [parse_requirement(requirement)])
    return found


def test_digits_after_the_point_are_kept_though_they_are_zero(tmp_path: Path) -> None:
    file = tmp_path / "all_reduce.log"
    file.write_text(HEADER + f"{GIB} {GIB // 4} float sum -1 6263.5 171.43 300.00 0\n")
    (section,) = read_file(file, op="all_reduce").sections
    (row,) = section.rows
    halves = (row.time_half_us, row.algbw_half_GBs, row.busbw_half_GBs)
    assert halves == pytest.approx((0.05, 0.005, 0.005))
    (found,) = judge_requirements(
        [imported_row(row, {})], Machine(), [parse_requirement("all_reduce@1G>=290GB/s")]
    )
    assert (found.answer, found.rounding_low, found.rounding_high) == ("pass", 299.995, 300.005)


@pytest.mark.parametrize(
    ("busbw", "bound", "answer", "says"),
    [
        (5.00, "5.3GB/s", "fail", "busbw 5 GB/s (a printed mean: no interval), below 5.3 GB/s"),
        (5.00, "5.05GB/s", "unclear", "is within 2.0 % of 5.05 GB/s: another run may be on its other side"),
        (5.00, "4.85GB/s", "pass", "at least 4.85 GB/s"),
    ],
)
def test_the_distance_is_that_of_the_printed_value(busbw: float, bound: str, answer: str, says: str) -> None:
    found = judged(f"all_reduce@1G>={bound}", busbw_GBs=busbw, busbw_half_GBs=0.005)
    assert found.answer == answer
    assert says in found.message


def test_too_few_digits_are_unclear_and_said_to_be() -> None:
    found = judged("all_reduce@1G>=0.012GB/s", busbw_GBs=0.01, busbw_half_GBs=0.005)
    assert found.answer == "unclear"
    assert "may be rounded from the other side of 0.012 GB/s: too few digits were printed" in found.message


def test_numbers_of_json_are_not_rounded() -> None:
    found = judged("all_reduce@1G>=290GB/s", busbw_GBs=300.0)
    assert (found.rounding_low, found.rounding_high) == (300.0, 300.0)


def test_the_digit_that_decides_is_shown() -> None:
    found = judged("all_reduce@1G>=524.64GB/s", busbw_GBs=524.63, busbw_half_GBs=0.005)
    assert "busbw 524.63 GB/s" in found.message
    assert "of 524.64 GB/s" in found.message


def test_long_times_are_told_in_their_own_unit() -> None:
    found = judged("all_reduce@1G<=20us", time_us=28_650.0, time_half_us=0.5)
    assert "time 28.65 ms (a printed mean: no interval), above 20 us" in found.message
