"""The page on groups that ran at once: which was slower, and that too few epochs cannot tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ncclbench.report.panels.groups import build

CANNOT = "Whether a group is slower cannot be told: that takes 6 epochs or more."
NONE = "No group is slower than the others beyond chance and the margin."


def row(topology: str, epochs: int, *, slow: bool = False) -> dict[str, Any]:
    groups = [
        {"ranks": ranks, "median_us": 9.0, "ratio": 1.5, "ci_low": 1.2, "ci_high": 1.9, "slow": slow}
        for ranks in ([0, 1], [2, 3])
    ]
    return {
        "status": "ok",
        "op": "all_reduce",
        "arm": "gloo",
        "mode": "isolated",
        "dtype": "float32",
        "redop": "sum",
        "root": None,
        "nbytes": 64,
        "nranks": 2,
        "median_us": 9.0,
        "topology": topology,
        "epochs": epochs,
        "ngroups": 2,
        "groups": groups,
        "slow_groups": 1 if slow else 0,
        "groups_spread": 1.1,
    }


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("pairs", 3), row("halves", 5)], CANNOT),
        ([row("pairs", 6), row("halves", 8)], NONE),
        (
            [row("pairs", 6), row("halves", 5)],
            f"{NONE} It cannot be told of 1 row with fewer than 6 epochs.",
        ),
        (
            [row("pairs", 6, slow=True), row("halves", 3)],
            "Slower than the other groups: ranks 0-1 in pairs (1.50x the others' time, all_reduce), "
            "in 1 row.",
        ),
    ],
)
def test_no_group_is_called_as_fast_where_epochs_are_too_few(rows: list[dict[str, Any]], said: str) -> None:
    report: Any = SimpleNamespace(sources=[SimpleNamespace(rows=rows, label="run")])
    content = build(report)
    assert content is not None
    assert content["words"] == said
