"""Rounding, ranks from busbw over algbw, and the vote of many cells."""

from __future__ import annotations

import random

import pytest

from ncclbench.importing.physics import (
    MOST_RANKS,
    Factor,
    Fit,
    Span,
    agree,
    factor_of,
    figure,
    ranks_between,
    rate_GBs,
    ratio,
    vote,
)


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        ("12.90", 12.9, 0.005),
        ("62239", 62239, 0.5),
        ("1e+06", 1e6, 5e5),
        ("5e-07", 5e-7, 5e-8),
        ("0.00", 0, 0.005),
    ],
)
def test_a_figure_knows_half_a_unit_of_its_last_digit(text: str, value: float, half: float) -> None:
    found = figure(text)
    assert found is not None
    assert (found.value, found.half) == (pytest.approx(value), pytest.approx(half))


@pytest.mark.parametrize(
    "text", ["inf", "nan", "N/A", "-1", "+1", "1,5", "12.", ".5", "1e999", "٣", "XXX.XX", "", "9" * 30]
)
def test_what_is_no_figure_is_none(text: str) -> None:
    assert figure(text) is None


@pytest.mark.parametrize("kind", ["twice", "part"])
def test_ranks_come_back_from_what_was_printed_of_them(kind: Factor) -> None:
    rng = random.Random(1)
    for _ in range(2000):
        nranks = rng.randint(1, 3000)
        algbw = rng.uniform(1, 500)
        printed = figure(f"{algbw:.2f}"), figure(f"{algbw * factor_of(kind, nranks):.2f}")
        assert printed[0] is not None
        assert printed[1] is not None
        fewest, most = ranks_between(kind, ratio(printed[0].span, printed[1].span))
        assert fewest <= nranks <= most


def test_a_factor_that_no_number_of_ranks_has_is_none() -> None:
    assert ranks_between("twice", Span(2.01, 2.02)) == (1, 0)
    fewest, most = ranks_between("part", Span(0.76, 0.79))
    assert fewest > most
    assert ranks_between("twice", Span(1.99, 2.0)) == (200, MOST_RANKS)


def test_figures_agree_by_their_rounding_or_nearly_or_not() -> None:
    time_us = figure("50.00")
    assert time_us is not None
    rate = rate_GBs(1 << 20, time_us)
    assert rate.low < 20.97152 < rate.high
    for text, expected in (
        ("20.97", Fit.EXACT),
        ("20.98", Fit.NEARLY),
        ("21.10", Fit.NEARLY),
        ("21.30", Fit.NO),
    ):
        algbw = figure(text)
        assert algbw is not None
        assert agree(rate, algbw.span) is expected


def test_the_vote_takes_what_most_cells_allow() -> None:
    assert vote([(7, 9), (8, 8), (1, 20)])[:3] == (8, 8, 3)
    assert vote([(7, 9), (8, 8), (1, 20)]).nranks == 8
    assert vote([(7, 9), (6, 10)]).nranks is None
    assert vote([]).nranks is None
    # One cell of many that was changed does not change the answer, half of them leave none.
    assert vote([(8, 8)] * 3 + [(5, 5)]).nranks == 8
    assert vote([(8, 8)] * 2 + [(5, 5)] * 2).nranks is None
    assert vote([(1, 0), (1, 0)]).agreeing == 0


def test_the_vote_counts_like_counting_one_by_one() -> None:
    rng = random.Random(2)
    for _ in range(300):
        ranges = [
            (low, low + rng.randint(-1, 6)) for low in (rng.randint(1, 20) for _ in range(rng.randint(1, 8)))
        ]
        depth = {n: sum(low <= n <= high for low, high in ranges) for n in range(1, 30)}
        found = vote(ranges)
        assert found.agreeing == max(depth.values())
        if found.agreeing:
            assert all(depth[n] == found.agreeing for n in range(found.fewest, found.most + 1))
