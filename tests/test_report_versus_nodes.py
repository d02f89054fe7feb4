"""The page about two nodes: what stands above the verdict, each side's own peak, and where latency ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importing import make_printed, write_imported
from report_fixtures import HOSTILE, SMALL
from report_reading import Page, content
from two_nodes import BLACKWELL, HOPPER, NODE_SIZES, change_gpus, node_run, on_nodes

from ncclbench.compare.launches import Comparison, compare_sides
from ncclbench.compare.sides import Side
from ncclbench.report.build import render_comparison
from ncclbench.report.versus import PANELS, Versus
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run

FEW: dict[str, Any] = {"ops": ("all_reduce",), "modes": ("back-to-back",), "epochs": 4, "iters": 20}


def nodes(base: list[Run], new: list[Run]) -> Comparison:
    return compare_sides(Side(base, None, "hopper"), Side(new, None, "blackwell"))


def panel(name: str, comparison: Comparison) -> dict[str, Any]:
    found = PANELS[name].build(Versus(comparison, None))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def one_each() -> Comparison:
    return nodes([node_run(HOPPER, "hopper-01", **FEW)], [node_run(BLACKWELL, "blackwell-01", seed=2, **FEW)])


# --- the answer


def test_what_is_confounded_stands_above_the_verdict(one_each: Comparison) -> None:
    text = Page(render_comparison(one_each)).text
    places = [
        text.index(words)
        for words in (
            "Compared: GPU NVIDIA H100 80GB HBM3 → NVIDIA B200.",
            "Also different: power limit (W) 700 → 850, driver 570.86.15 → 580.65.06",
            "the effect cannot be told apart from these.",
            "Ratios without a verdict: one launch a side",
        )
    ]
    assert places == sorted(places)


def test_one_node_a_side_is_a_verdict_on_these_nodes() -> None:
    base = [node_run(HOPPER, "hopper-01", seed=seed, **FEW) for seed in range(4)]
    new = [node_run(BLACKWELL, "blackwell-01", seed=10 + seed, **FEW) for seed in range(4)]
    verdict = panel("verdict", nodes(base, new))
    assert verdict["headline"] == "Faster in 28 of 28 cases, slower in none"
    assert verdict["about"] == "On these two nodes, hopper-01 and blackwell-01, not on their kinds."


def test_three_nodes_a_side_are_a_verdict_on_their_kinds() -> None:
    comparison = nodes(
        on_nodes(HOPPER, ("h1", "h2", "h3"), **FEW), on_nodes(BLACKWELL, ("b1", "b2", "b3"), seed=100, **FEW)
    )
    verdict = panel("verdict", comparison)
    assert verdict["headline"].startswith("Faster in ")
    assert verdict["about"] == "On kinds of nodes: 3 against 3, and each node counts once."
    assert "The unit is the node" in verdict["rests_on"]


# --- each side against its own peak


def test_each_side_has_its_own_peak(one_each: Comparison) -> None:
    (line,) = panel("peaks", one_each)["lines"]
    assert (line["size"], line["mode"]) == ("1G", "back-to-back")
    base, new = line["sides"]
    assert base["rate"].startswith("38")
    assert base["share"].endswith("of the NVLink peak (450 GB/s, NVLink 4)")
    assert new["share"].endswith("of the NVLink peak (900 GB/s, NVLink 5)")


def test_gpu_without_a_peak_says_so() -> None:
    odd = change_gpus(node_run(BLACKWELL, "odd", seed=2, **FEW), name="NVIDIA Z9")
    (line,) = panel("peaks", nodes([node_run(HOPPER, "hopper-01", **FEW)], [odd]))["lines"]
    assert "NVLink peak" in line["sides"][0]["share"]
    assert line["sides"][1]["share"].startswith("no reference: ")


# --- where latency ends


def test_both_sides_of_every_curve_are_fitted(one_each: Comparison) -> None:
    found = panel("fits", one_each)
    (curve,) = found["curves"]
    assert [line["side"] for line in curve["lines"]] == ["hopper", "blackwell", "new / base"]
    latency, bandwidth, half, bound = curve["lines"][0]["cells"]
    assert latency["value"].startswith("18")
    assert latency["interval"].startswith("[18")
    assert bandwidth["value"].endswith("GB/s")
    assert half["value"].endswith("M")
    assert bound["value"][-1] in "KM"
    assert "changes between 128K and 256K" in curve["lines"][0]["note"]
    assert curve["lines"][2]["cells"][1]["value"].startswith("1.9")
    assert found["units"] == "epochs"


def test_sweeps_that_are_too_short_have_no_fits() -> None:
    short = {**FEW, "sizes": SMALL}
    comparison = nodes([node_run(HOPPER, "h", **short)], [node_run(BLACKWELL, "b", seed=2, **short)])
    assert PANELS["fits"].build(Versus(comparison, None)) is None


def test_latency_alone_is_shown_with_its_reason() -> None:
    short = {**FEW, "sizes": NODE_SIZES[:12]}
    comparison = nodes([node_run(HOPPER, "h", **short)], [node_run(BLACKWELL, "b", seed=2, **short)])
    cells = panel("fits", comparison)["curves"][0]["lines"][0]["cells"]
    assert cells[0]["value"].startswith("18")
    assert (cells[1]["value"], cells[1]["why"]) == ("–", "not reached at 16K: measure larger sizes (-e)")


def test_sweep_report_has_the_fits_too() -> None:
    run = node_run(HOPPER, "hopper-01", **{**FEW, "modes": ("isolated", "back-to-back")})
    lines = content("fits", run)["lines"]
    assert [(line["family"], line["mode"]) for line in lines] == [
        ("all_reduce float32 sum", "isolated"),
        ("all_reduce float32 sum", "back-to-back"),
    ]
    assert lines[0]["cells"][0]["value"].startswith("24")


# --- side by side


def test_sides_stand_fact_beside_fact(one_each: Comparison) -> None:
    lines = {line["what"]: line for line in panel("sides", one_each)["lines"]}
    assert (lines["driver"]["base"], lines["driver"]["new"]) == ("570.86.15", "580.65.06")
    assert lines["driver"]["differs"]
    assert not lines["torch"]["differs"]
    assert lines["power limit"]["new"] == "850 W"
    assert lines["GPU links"]["base"] == "NV18"
    assert lines["NICs"]["base"] == "8 x 400 Gb/s InfiniBand"


def test_a_fact_that_not_all_ranks_have_alike_counts_them() -> None:
    run = node_run(HOPPER, "hopper-01", **FEW)
    environment = run.meta["environment"]
    del environment["common"]["gpu"]["power_limit_w"]
    for rank in environment["ranks"]:
        rank["gpu"]["power_limit_w"] = 500.0 if rank["rank"] == 3 else 700.0
    lines = panel("sides", nodes([run], [node_run(HOPPER, "hopper-02", seed=2, **FEW)]))["lines"]
    (power,) = [line for line in lines if line["what"] == "power limit"]
    assert power["base"] == "700 W on 7 ranks, 500 W on 1 rank"


def test_odd_values_are_shown_as_they_stand() -> None:
    run = change_gpus(node_run(HOPPER, "h", **FEW), power_limit_w=["x"], memory_total_bytes="much", name=None)
    lines = panel("sides", nodes([run], [node_run(HOPPER, "i", seed=2, **FEW)]))["lines"]
    shown = {line["what"]: line["base"] for line in lines}
    assert shown["power limit"] == '["x"]'
    assert shown["GPU memory"] == "much"
    assert shown["GPU"] == "–"


# --- printed means


def printed(folder: Path, scale: float) -> Run:
    rows = [make_printed(nbytes, scale * (18.0 + nbytes * 7 / 4 / 395e3)) for nbytes in NODE_SIZES]
    return load_run(write_imported(folder, rows))


def test_printed_means_have_a_page_without_intervals(tmp_path: Path) -> None:
    comparison = nodes([printed(tmp_path / "hopper", 1.0)], [printed(tmp_path / "blackwell", 0.6)])
    verdict = panel("verdict", comparison)
    assert verdict["headline"] == "Ratios without a verdict: printed means"
    assert verdict["number"] == "0.60x time"
    (curve,) = panel("fits", comparison)["curves"]
    for line in curve["lines"][:2]:
        assert all(cell["value"] != "–" and cell["interval"] == "" for cell in line["cells"])
        assert "one time per size: no interval" in line["note"]
    assert "imported: means only, no intervals" in Page(render_comparison(comparison)).text


def test_printed_means_stand_against_a_measured_run(tmp_path: Path) -> None:
    comparison = nodes(
        [printed(tmp_path / "nccl-tests", 1.0)], [node_run(HOPPER, "hopper-01", seed=2, **FEW)]
    )
    verdict = panel("verdict", comparison)
    assert "measured by nccl-tests → ncclbench" in verdict["confounded"]
    (curve,) = panel("fits", comparison)["curves"]
    printed_line, measured_line, _ = curve["lines"]
    assert printed_line["cells"][0]["interval"] == ""
    assert measured_line["cells"][0]["interval"] != ""
    assert "hopper-01" in Page(render_comparison(comparison)).text


# --- the whole


def test_usual_page_keeps_its_size() -> None:
    html = render_comparison(nodes([node_run(HOPPER, "h")], [node_run(BLACKWELL, "b", seed=2)]))
    assert len(html.encode()) < 2_200_000


def test_hostile_nodes_are_text() -> None:
    base = change_gpus(node_run(HOPPER, HOSTILE, **FEW), name=HOSTILE, driver=HOSTILE, power_limit_w=HOSTILE)
    new = change_gpus(node_run(BLACKWELL, "b", seed=2, **FEW), name=f"{HOSTILE}2")
    for run in (base, new):
        run.meta["arms"]["nccl2"]["implementation"] = HOSTILE + run.folder.name
        run.meta["environment"]["common"]["variables"][f"NCCL_{HOSTILE}"] = run.folder.name
    page = Page(render_comparison(nodes([base], [new])))
    assert page.tagged("img") == []
    assert len(page.tagged("script")) == 4
    assert page.text.count("alert('1')") > 8
