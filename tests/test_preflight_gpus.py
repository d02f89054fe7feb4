"""Findings about GPUs that are narrowed, sick, or not of one model; healthy ones are left in peace."""

from __future__ import annotations

from typing import Any

import pytest
from test_preflight import Job, check, job, only


def with_links(nhosts: int = 1) -> Job:
    ranks = job(nhosts, 4)
    for each in ranks:
        each["rank"]["gpu"] |= {
            "nvlinks_up": 18,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "ecc_uncorrected": 0,
            "row_remap_pending": False,
            "row_remap_failed": False,
            "retired_pages_pending": None,
        }
    return ranks


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({}, None),
        ({"pcie_width": 8}, "the GPU of rank 6 (n1, cuda:2) has 8 of 16 PCIe lanes"),
        ({"pcie_width": None}, None),
        # What a GPU of its own has less than others is told, not what all of them have.
        ({"nvlinks_up": 17}, "the GPU of rank 6 (n1, cuda:2) has 17 NVLinks up, its twins have 18"),
        ({"nvlinks_up": 0}, "has 0 NVLinks up"),
        ({"nvlinks_up": None}, None),
        ({"ecc_uncorrected": 2}, "has uncorrected ECC errors"),
        ({"row_remap_pending": True}, "has memory rows that wait to be remapped"),
        ({"row_remap_failed": True}, "could not remap a memory row"),
        ({"retired_pages_pending": True}, "has memory pages that wait to be retired"),
        ({"throttle_reasons": ["board limit"]}, "throttled: board limit"),
    ],
)
def test_narrowed_and_sick_gpus(gpu: dict[str, Any], words: str | None) -> None:
    ranks = with_links(2)
    ranks[6]["rank"]["gpu"] |= gpu
    if words is None:
        assert check(ranks) == []
    else:
        finding = only(check(ranks))
        assert (finding["ranks"], finding["severity"]) == ([6], "warning")
        assert words in finding["what"]
    assert check(ranks, ("gloo",)) == []


def test_links_are_compared_among_twins_of_one_host() -> None:
    ranks = with_links(2)
    for each in ranks[4:]:
        each["rank"]["gpu"]["nvlinks_up"] = 12
    assert check(ranks) == []


def test_several_narrowed_gpus_are_one_finding() -> None:
    ranks = with_links()
    for each in ranks[1:]:
        each["rank"]["gpu"]["pcie_width"] = 8
    finding = only(check(ranks))
    assert finding["ranks"] == [1, 2, 3]
    assert "and 2 more like it" in finding["what"]


def test_gpus_of_several_models() -> None:
    ranks = job(1, 4)
    ranks[3]["rank"]["gpu"]["name"] = "NVIDIA H200"
    finding = only(check(ranks))
    assert finding["ranks"] == [3]
    assert "NVIDIA H200" in finding["what"]
