"""Pages of very many comparisons: they stay small, keep all that differs, and say what is left out."""

from __future__ import annotations

from typing import Any

from ncclbench.report.effects import heat_legend, heat_table, ratio_figure
from ncclbench.report.model import MOST_TABLED, Series, families_of, numbered_series, tabled, thinned

_NUMBER = 3 * MOST_TABLED
_SERIES: Series = numbered_series(0, "new")


def compared(nbytes: int, verdict: str = "unclear") -> dict[str, Any]:
    axes = {"dtype": "float32", "redop": "sum", "root": None, "topology": "world", "async": False}
    axes |= {"in_place": True, "nranks": 2}
    times = {"ratio": 1.0, "ci_low": 0.9, "ci_high": 1.1, "margin": 0.03, "shift": []}
    return {
        **axes,
        **times,
        "op": "all_reduce",
        "nbytes": nbytes,
        "mode": "isolated",
        "base": "a",
        "new": "b",
        "verdict": verdict,
        "statistic": "p25",
        "unit": "epochs",
        "epochs": 8,
        "beyond_margin": False,
        "between_modes": False,
        "detectable": None,
        "note": None,
        "doubt": None,
        "tail": None,
        "p_holm": None,
        "clock": "host",
        "base_us": 1.0,
        "new_us": 1.0,
    }


ROWS = [compared(4 * place, "slower" if place in (2, 5001) else "unclear") for place in range(1, _NUMBER + 1)]


def test_of_very_many_some_are_shown_with_the_largest_and_all_that_differ() -> None:
    few = ROWS[:MOST_TABLED]
    assert thinned(few) == few
    shown = thinned(ROWS)
    assert _NUMBER // 4 < len(shown) <= MOST_TABLED + 2
    assert shown[-1] is ROWS[-1]
    assert [row["nbytes"] for row in shown if row["verdict"] == "slower"] == [8, 20004]
    table = tabled(ROWS)
    assert len(table) == MOST_TABLED
    assert [row["nbytes"] for row in table if row["verdict"] == "slower"] == [8, 20004]


def test_figures_and_tables_draw_those_count_all_and_say_so() -> None:
    heat = heat_table("b against a", ROWS, families_of(ROWS), lambda row: None)
    assert len(heat["sizes"]) == len(thinned(ROWS))
    assert f"{_NUMBER - 2:,} unclear" in heat["words"]
    assert any("left out here" in line for line in heat_legend(ROWS))
    assert not any("left out" in line for line in heat_legend(ROWS[:10]))
    (modes,) = ratio_figure(ROWS, lambda row: _SERIES).plots.values()
    assert len(modes["isolated"].data[1]["x"]) == len(thinned(ROWS))
