"""The map of links: what is where, what colour and words it has, and what it leaves out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from report_reading import content, figures_of, page_of
from searching_fixtures import make_search

from ncclbench.report.build import render, report_of
from ncclbench.report.figures import ALWAYS, Figure, Plot
from ncclbench.report.linkmap import MOST_RANKS
from ncclbench.store.model import Run
from ncclbench.store.probes import PairTest

BANDWIDTH, BOTH, LATENCY = "bandwidth, GB/s", "both ways at once, GB/s", "latency, µs"


def figure(run: Run) -> Figure:
    return figures_of(run)["links-0"]


def plots(run: Run) -> dict[str, Plot]:
    return figure(run).plots[ALWAYS]


def block(run: Run) -> dict[str, Any]:
    (found,) = content("links", run)["blocks"]
    return dict(found)


@pytest.fixture(scope="module")
def slow_pair() -> Run:
    """Four hosts of two ranks; data from rank 1 to rank 6 takes four times as long."""
    return make_search(kind="matrix", hosts=4, ranks_per_host=2, slow_pairs={(1, 6): 4.0})


@pytest.fixture(scope="module")
def large() -> Run:
    """64 ranks with a slow host and a slow pair."""
    return make_search(
        hosts=8, ranks_per_host=8, slow_hosts={2: 4.0}, slow_pairs={(3, 41): 1.8, (41, 3): 1.8}
    )


def test_row_is_the_source_and_colour_is_the_ratio_to_the_class(slow_pair: Run) -> None:
    cells = plots(slow_pair)[BANDWIDTH].data[0]["z"]
    assert cells[1][6] == -1.0  # 4x slower: as far as colours go
    assert abs(cells[6][1]) < 0.1
    assert cells[1][1] is None
    # Inside a host 180 GB/s, across 24: both are the median of their class.
    assert abs(cells[0][1]) < 0.1
    assert abs(cells[0][2]) < 0.1


def test_both_ways_and_latency_are_shown_on_request(slow_pair: Run) -> None:
    found = plots(slow_pair)
    assert list(found) == [BANDWIDTH, BOTH, LATENCY]
    assert found[BOTH].data[0]["z"][1][6] == -1.0
    assert abs(found[LATENCY].data[0]["z"][1][6]) < 0.15


def test_hover_names_both_ends_and_all_numbers(slow_pair: Run) -> None:
    text = figure(slow_pair).shared["hovertext"][1][6]
    assert text.startswith("<b>1 → 6</b> node-00 → node-03, across<br>bandwidth 6.0")
    assert " GB/s, 25 % of median<br>both ways at once 5.4" in text
    assert "<br>latency 1" in text
    assert text.endswith("<br>odd")


def test_ranks_of_a_host_stand_together_whatever_their_numbers() -> None:
    run = make_search(kind="matrix", hosts=2, ranks_per_host=2, slow_pairs={(0, 1): 4.0})
    for entry in run.meta["environment"]["ranks"]:
        entry["host"] = entry["rank"] % 2
    # Order: 0, 2 of one host, then 1, 3 of the other.
    text = figure(run).shared["hovertext"]
    assert text[0][2].startswith("<b>0 → 1</b>")
    layout = plots(run)[BANDWIDTH].layout
    assert layout["xaxis"]["ticktext"] == ["node-00", "node-01"]
    assert layout["xaxis"]["tickvals"] == [0.5, 2.5]
    assert [(shape["x0"], shape["y0"]) for shape in layout["shapes"]] == [(1.5, -0.5), (-0.5, 1.5)]


def test_the_odd_one_is_marked_and_listed_with_its_interval(slow_pair: Run) -> None:
    marks = plots(slow_pair)[BANDWIDTH].data[1]
    assert (marks["x"], marks["y"]) == ([6], [1])
    assert len(plots(slow_pair)[LATENCY].data) == 1
    found = block(slow_pair)
    assert found["counts"] == "1 ordered pair is odd."
    ((ranks, hosts, name, ratio, interval, rate),) = found["odd"]
    assert (ranks, hosts, name, ratio) == ("1 → 6", "node-00 → node-03", "across", "25 %")
    low, high = (float(end.removesuffix(" %")) for end in interval.split(" – "))
    assert low <= 25 <= high
    assert rate.startswith("6.0")


def test_classes_have_medians_of_their_own(slow_pair: Run) -> None:
    inside, across = sorted(block(slow_pair)["classes"], key=lambda cells: cells[0], reverse=True)
    assert (inside[:2], inside[-1]) == (["same host", "8"], "0")
    assert (across[:2], across[-1]) == (["across", "48"], "1")
    assert 175 < float(inside[2].removesuffix(" GB/s")) < 185
    assert 23 < float(across[2].removesuffix(" GB/s")) < 25


def test_healthy_cluster_has_no_odd_pair() -> None:
    found = block(make_search(kind="matrix"))
    assert (found["counts"], found["odd"], found["notes"]) == ("No pair is odd.", [], [])


def test_of_a_slow_host_what_its_name_does_not_explain_comes_first(large: Run) -> None:
    found = block(large)
    assert {cells[0] for cells in found["odd"][:2]} == {"3 → 41", "41 → 3"}
    assert found["counts"] == "898 ordered pairs are odd, 896 of them of host node-02, named above."
    assert found["more"] == 898 - 40
    marks = plots(large)["bandwidth"].data[1]
    assert sorted(zip(marks["y"], marks["x"], strict=True)) == [(3, 41), (41, 3)]


def test_page_of_64_ranks_is_small(large: Run) -> None:
    assert len(render(report_of([large])).encode()) < 2_200_000


def test_sampled_pairs_are_empty_cells_and_counted() -> None:
    run = make_search(kind="matrix", hosts=12, passes=4, sampled=0.5)
    cells = plots(run)["bandwidth"].data[0]["z"]
    empty = sum(value is None for row in cells for value in row) - len(cells)
    assert empty > 0
    assert f"{empty} ordered pairs of 132 not looked at: empty." in block(run)["notes"]
    assert f"{empty} ordered pairs of 132 not looked at" in page_of(run).text


def test_of_many_ranks_a_cell_is_the_slowest_link_between_two_hosts() -> None:
    run = make_search(kind="matrix", hosts=9, ranks_per_host=16, passes=3, sampled=0.1)
    pairs = [(probe.src, probe.dst) for probe in run.probes if isinstance(probe, PairTest)]
    odd = next((src, dst) for src, dst in pairs if (src // 16, dst // 16) == (3, 7))
    run.probes = [
        msgspec.structs.replace(probe, alone_GBs=probe.alone_GBs / 5)
        if isinstance(probe, PairTest) and (probe.src, probe.dst) == odd
        else probe
        for probe in run.probes
    ]
    found = figure(run)
    cells = found.plots[ALWAYS]["bandwidth"].data[0]["z"]
    assert (len(cells), cells[3][7]) == (9, -1.0)
    assert abs(cells[7][3]) < 0.2
    between = {pair for pair in pairs if (pair[0] // 16, pair[1] // 16) == (3, 7)}
    text = found.shared["hovertext"][3][7]
    assert text.startswith(f"<b>{odd[0]} → {odd[1]}</b> node-03 → node-07")
    assert text.endswith(f"the slowest of {len(between)} links")
    assert block(run)["notes"][0] == (
        "Of 144 ranks each cell is the slowest link that was measured between two hosts."
    )


def test_of_very_many_hosts_those_furthest_from_the_median_are_kept() -> None:
    run = make_search(kind="matrix", hosts=140, passes=3, sampled=0.05, slow_hosts={137: 3.0})
    found = figure(run)
    assert len(found.shared["hovertext"]) == MOST_RANKS
    assert any("node-137" in text for row in found.shared["hovertext"] for text in row)
    assert "of 140 hosts these are the 128 furthest from the median" in block(run)["notes"][0]


def scaled(run: Run, factor: float, **slower: float) -> Run:
    """The run with all bandwidths times ``factor``, and those of links "src_dst" divided as well."""
    run.probes = [
        msgspec.structs.replace(
            probe, alone_GBs=probe.alone_GBs * factor / slower.get(f"link{probe.src}_{probe.dst}", 1.0)
        )
        if isinstance(probe, PairTest)
        else probe
        for probe in run.probes
    ]
    return run


@pytest.mark.parametrize(
    ("factor", "slowness", "unit", "slow", "usual"),
    [
        (0.07, 2.1, "GB/s", 0.8, 1.68),  # 800 MB/s beside 1.68 GB/s
        (0.03, 0.5, "MB/s", 1440, 720),
        (0.07, 70.0, "GB/s", 0.024, 1.68),
        (2e-5, 2.0, "KB/s", 240, 480),
    ],
)
def test_numbers_of_a_map_have_one_unit_which_is_named(
    factor: float, slowness: float, unit: str, slow: float, usual: float
) -> None:
    run = scaled(make_search(kind="matrix", hosts=3), factor, link0_2=slowness)
    (option,) = [name for name in plots(run) if name.startswith("bandwidth")]
    assert option == f"bandwidth, {unit}"
    texts = plots(run)[option].data[0]["text"]
    assert float(texts[0][2]) == pytest.approx(slow, rel=0.05)
    assert float(texts[2][0]) == pytest.approx(usual, rel=0.05)
    assert (float(texts[0][2]) < float(texts[2][0])) == (slowness > 1)


def test_what_hardly_moves_still_fits_into_its_cell() -> None:
    run = scaled(make_search(kind="matrix", hosts=3), 1.0, link0_2=1e6)
    assert plots(run)[BANDWIDTH].data[0]["text"][0][2] == "<0.001"


def without(run: Run, rank: int) -> Run:
    run.probes = [one for one in run.probes if rank not in (getattr(one, "src", -1), getattr(one, "dst", -1))]
    return run


def test_ranks_that_are_not_in_the_map_are_named() -> None:
    assert (
        "Not in the map: rank 1, of which no link was measured."
        in block(without(make_search(kind="matrix", hosts=3), 1))["notes"]
    )
    run = make_search(kind="matrix", hosts=3, ranks_per_host=2)
    for rank in (1, 3, 5):
        run = without(run, rank)
    assert block(run)["notes"] == ["One rank speaks for each host."]
