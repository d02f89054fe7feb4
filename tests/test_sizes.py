"""Which sizes a sweep visits, and which requests for sizes are refused."""

from __future__ import annotations

import pytest

from ncclbench.errors import RequestError
from ncclbench.plan.sizes import MAX_SIZES, parse_sizes


def test_defaults_double_from_8_bytes_to_64_mebibytes() -> None:
    assert parse_sizes() == tuple(2**power for power in range(3, 27))


def test_factor_stops_at_the_last_size_not_above_the_maximum() -> None:
    assert parse_sizes(min_bytes="3", max_bytes="100", step_factor="3") == (3, 9, 27, 81)


def test_fractional_factor_keeps_whole_bytes_as_nccl_tests_does() -> None:
    assert parse_sizes(min_bytes="10", max_bytes="60", step_factor="1.5") == (10, 15, 22, 33, 49)


def test_step_adds_instead_of_multiplying() -> None:
    assert parse_sizes(min_bytes="1K", max_bytes="4K", step_bytes="1K") == (1024, 2048, 3072, 4096)


def test_minimum_equal_to_maximum_is_one_size() -> None:
    assert parse_sizes(min_bytes="1M", max_bytes="1M") == (1 << 20,)
    assert parse_sizes(min_bytes="1M", max_bytes="1M", step_bytes="8") == (1 << 20,)


def test_list_is_sorted_and_takes_suffixes() -> None:
    assert parse_sizes(sizes="1M, 8,64K") == (8, 65536, 1 << 20)


def test_as_many_sizes_as_allowed() -> None:
    assert len(parse_sizes(min_bytes="1", max_bytes=str(MAX_SIZES), step_bytes="1")) == MAX_SIZES
    with pytest.raises(RequestError, match="2,001 sizes"):
        parse_sizes(min_bytes="1", max_bytes=str(MAX_SIZES + 1), step_bytes="1")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"min_bytes": "0"}, "zero"),
        ({"min_bytes": "-8"}, "not a size"),
        ({"min_bytes": "8MB8"}, "not a size"),
        ({"min_bytes": ""}, "not a size"),
        ({"max_bytes": str(2**70)}, "more than 64T"),
        ({"max_bytes": "9" * 400}, "more than 64T"),
        ({"min_bytes": "1.3"}, "whole number of bytes"),
        ({"min_bytes": "1M", "max_bytes": "1K"}, "1M is above -e/--max-bytes 1K"),
        ({"min_bytes": "1G"}, "above -e/--max-bytes 64M .the default."),
        ({"step_factor": "1"}, "above 1"),
        ({"step_factor": "0.5"}, "above 1"),
        ({"step_factor": "-2"}, "not a number"),
        ({"step_factor": "nan"}, "not a number"),
        ({"step_factor": "inf"}, "not a number"),
        ({"step_factor": "1e3"}, "not a number"),
        ({"step_factor": "1.0001"}, "does not grow a size of 8 bytes"),
        ({"min_bytes": "1M", "step_factor": "1.0001"}, "more than 2,000 sizes"),
        ({"step_bytes": "8"}, "8,388,608 sizes"),
        ({"step_bytes": "0"}, "zero"),
        ({"step_bytes": "1M", "step_factor": "2"}, "contradict"),
        ({"sizes": "8,,16"}, "empty entry"),
        ({"sizes": ""}, "empty entry"),
        ({"sizes": "8,16,"}, "empty entry"),
        ({"sizes": "8,16,8"}, "8 twice"),
        ({"sizes": "1K,1024"}, "1024 twice"),
        ({"sizes": "8;16"}, "not a size"),
        ({"sizes": "8", "max_bytes": "1M"}, "leave out"),
    ],
)
def test_refused(asked: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        parse_sizes(**asked)
    assert "\n" not in str(caught.value)
