"""The page of a comparison of runs: the answer, what it rests on, and what was left out."""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import HOSTILE, SIZES, SMALL, make_calibration, make_case, make_launches, make_run
from report_reading import Page, drawing_of

from ncclbench.compare.launches import Comparison, compare_sides
from ncclbench.compare.sides import Side
from ncclbench.errors import MeasurementError
from ncclbench.report import versus as versus_package
from ncclbench.report.build import render_comparison, write_comparison
from ncclbench.report.calibrations import MISSING
from ncclbench.report.versus import PANELS, Gate, Versus
from ncclbench.store.model import Run

TEMPLATES = Path(__file__).resolve().parent.parent / "ncclbench" / "report" / "templates"
QUIET: dict[str, Any] = {"noise": 0.01, "epoch_spread": 0.003, "epochs": 2, "iters": 20, "sizes": SMALL}


def sides(base: list[Run], new: list[Run], **settings: Any) -> Comparison:
    return compare_sides(Side(base, None, "monday"), Side(new, None, "tuesday"), **settings)


def launches(slower: float = 1.0, number: int = 5, **settings: Any) -> Comparison:
    """Launches on Monday against as many on Tuesday."""
    settings = {**QUIET, **settings}
    return sides(
        make_launches("monday", number, **settings),
        make_launches("tuesday", number, seed=7, slower=slower, **settings),
    )


def panel(name: str, comparison: Comparison, gate: Gate | None = None) -> dict[str, Any]:
    found = PANELS[name].build(Versus(comparison, gate))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def slower() -> Comparison:
    return launches(slower=1.3)


# --- the page


def test_every_panel_file_is_in_the_table_and_has_a_template() -> None:
    modules = {name for _, name, _ in pkgutil.iter_modules(versus_package.__path__)} - {"model"}
    found = {import_module(f"{versus_package.__name__}.{name}").PANEL.name for name in modules}
    assert found == set(PANELS)
    orders = [entry.order for entry in PANELS.values()]
    assert orders == sorted(set(orders))
    assert all((TEMPLATES / entry.template).is_file() for entry in PANELS.values())


def test_page_holds_its_parts_in_order_and_leaves_out_what_is_empty(slower: Comparison) -> None:
    page = Page(render_comparison(slower))
    links = [str(attributes["href"]) for attributes in page.tagged("a")]
    assert links == ["#verdict", "#ratios", "#sides", "#differences", "#table", "#runs", "#howto"]
    assert {link.removeprefix("#") for link in links} <= page.ids()
    assert "tuesday against monday" in page.text


def test_file_is_replaced_whole_and_keeps_its_size(tmp_path: Path) -> None:
    comparison = launches(sizes=SIZES, iters=4)
    assert len(comparison.rows) == 96
    path = tmp_path / "comparison.html"
    write_comparison(comparison, path, Gate(True, "slower:5%"))
    assert path.read_text("utf-8").startswith("<!doctype html>")
    assert path.stat().st_size < 2_200_000
    with pytest.raises(MeasurementError):
        write_comparison(comparison, tmp_path / "none" / "comparison.html")


def test_hostile_texts_are_text() -> None:
    base, new = make_launches("monday", 2, **QUIET), make_launches(HOSTILE, 2, **QUIET)
    for run in new:
        run.meta["command"] = ["ncclbench", HOSTILE]
        run.meta["created"] = HOSTILE
        run.meta["status"] = HOSTILE
        run.meta["calibration"] = make_calibration((HOSTILE, 8, HOSTILE, 0.1)) | {"advice": [HOSTILE]}
        run.meta["environment"]["hosts"][0] |= {"name": HOSTILE, "driver": HOSTILE, HOSTILE: HOSTILE}
        run.plan = replace(run.plan, cases=run.plan.cases[1:])
    comparison = compare_sides(Side(base, None, "monday"), Side(new, None, HOSTILE))
    comparison.unpaired.append({"case": HOSTILE, "side": HOSTILE, "reason": HOSTILE})
    comparison.notes.append(HOSTILE)
    html = render_comparison(comparison, Gate(False, HOSTILE))
    page = Page(html)
    assert page.tagged("img") == []
    assert [script.get("id") for script in page.tagged("script")] == [
        "rows-data",
        "drawing",
        "plotlyjs",
        None,
    ]
    assert "".join(page.text.split()).count("".join(HOSTILE.split())) > 15
    for figure in drawing_of(html)["figures"].values():
        for options in figure["plots"].values():
            for plot in options.values():
                drawn = json.dumps([plot["data"], plot["layout"]], ensure_ascii=False)
                assert set(re.findall(r"</?([a-z]+)", drawn)) <= {"b", "br"}


# --- the answer


def test_regression_is_the_headline_and_its_ratio_the_number(slower: Comparison) -> None:
    verdict = panel("verdict", slower)
    worst = max(row["ratio"] for row in slower.rows)
    assert (verdict["tone"], verdict["headline"]) == ("bad", "Slower beyond the margin in 12 of 12 cases")
    assert verdict["number"] == f"{worst:.2f}x time"
    assert verdict["caption"].startswith("the worst regression: ")
    assert verdict["rests_on"] == (
        "Compared: the p25. The unit is the launch: 5 launches of the base, 5 of the new side."
    )
    assert verdict["calibration"] == [MISSING]


def test_small_and_large_messages_stand_apart(slower: Comparison) -> None:
    parts = panel("verdict", slower)["parts"]
    assert [(part["op"], part["mode"]) for part in parts] == [
        ("all_reduce", "isolated"),
        ("all_reduce", "back-to-back"),
        ("broadcast", "isolated"),
        ("broadcast", "back-to-back"),
    ]
    small, large = parts[0]["spans"]
    own = [row for row in slower.rows if (row["op"], row["mode"]) == ("all_reduce", "isolated")]
    assert (small["verdicts"], large["verdicts"]) == ("2 slower", "1 slower")
    assert large["typical"] == f"{own[2]['ratio']:.2f}x"
    assert small["range"] == " – ".join(f"{ratio:.2f}x" for ratio in sorted(row["ratio"] for row in own[:2]))


def test_gain_is_good_and_named() -> None:
    verdict = panel("verdict", launches(slower=0.7))
    assert (verdict["tone"], verdict["headline"]) == ("good", "Faster in 12 of 12 cases, slower in none")
    assert verdict["caption"].startswith("the largest gain: ")


def test_same_needs_to_be_shown() -> None:
    run = make_run(arms=("a", "b"), **{**QUIET, "epochs": 12, "iters": 240, "modes": ("back-to-back",)})
    comparison = compare_sides(Side([run], "a", "demo:a"), Side([run], "b", "demo:b"))
    assert {row["verdict"] for row in comparison.rows} == {"same"}
    verdict = panel("verdict", comparison)
    assert (verdict["tone"], verdict["headline"]) == ("good", "The same in all 6 cases")
    assert verdict["caption"].endswith("typical over all 6 cases")
    assert verdict["rests_on"].endswith("side by side in one job, 12 epochs.")
    assert panel("differences", comparison)["one_job"]
    assert "Both sides ran in the same job" in Page(render_comparison(comparison)).text


def test_two_launches_support_no_claim_and_the_page_says_why() -> None:
    comparison = launches(slower=1.3, number=1)
    verdict = panel("verdict", comparison)
    assert (verdict["tone"], verdict["headline"]) == (
        "warn",
        "Ratios without a verdict: one launch a side",
    )
    # Nothing is claimed, so no direction is.
    assert verdict["caption"] == "new over base; typical over all 12 cases"
    (line, *_) = verdict["pairs"][0]["lines"]
    assert (
        "12 unclear" in " ".join(verdict["pairs"][0]["lines"]) or "unclear: these two launches differ" in line
    )
    # A ratio without an interval has its point in the figure all the same.
    (figure,) = [each for each in panel("ratios", comparison)["figures"] if each.name == "ratios"]
    plot = next(iter(figure.plots.values()))["isolated"]
    assert plot.data[-1]["error_y"]["array"] == [0.0] * len(SMALL)
    assert "launches" not in [each.name for each in panel("ratios", comparison)["figures"]]


def test_wrong_data_comes_before_everything() -> None:
    base, new = make_launches("monday", 5, **QUIET), make_launches("tuesday", 5, seed=7, slower=1.3, **QUIET)
    key = make_case("broadcast", 4096).key
    new[0].units[key, "gloo"] = [replace(unit, wrong=(0, 7)) for unit in new[0].units[key, "gloo"]]
    verdict = panel("verdict", sides(base, new))
    assert (verdict["tone"], verdict["headline"]) == ("bad", "WRONG data")
    assert "tuesday-0" in verdict["details"][0]


@pytest.mark.parametrize(("passed", "words"), [(True, "Gate passed"), (False, "Gate failed")])
def test_gate_is_told(slower: Comparison, passed: bool, words: str) -> None:
    gate = Gate(passed, "slower:50%: no case is that much slower")
    page = Page(render_comparison(slower, gate))
    assert re.search(f"{words} ?: slower:50%: no case", page.text)
    assert panel("verdict", slower, gate)["tone"] == ("warn" if passed else "bad")
    assert "Gate" not in Page(render_comparison(slower)).text


# --- what it rests on, and what was left out


def test_differences_come_with_both_values() -> None:
    base, new = make_launches("monday", 2, **QUIET), make_launches("tuesday", 2, **QUIET)
    for run in new:
        run.meta["environment"]["hosts"][0]["driver"] = "595.10"
    lines = panel("differences", sides(base, new))["lines"]
    assert ("driver", "590.44", "595.10") in lines
    text = Page(render_comparison(sides(base, new))).text
    assert "driver 590.44 595.10" in text


def test_cases_without_a_partner_are_named_with_their_reason() -> None:
    base, new = make_launches("monday", 2, **QUIET), make_launches("tuesday", 2, **QUIET)
    for run in new:
        run.plan = replace(run.plan, cases=run.plan.cases[1:])
    comparison = sides(base, new)
    (group,) = panel("unpaired", comparison)["groups"]
    assert (group["side"], group["count"]) == ("base", 1)
    assert group["reason"] == comparison.unpaired[0]["reason"]
    assert "unpaired" in Page(render_comparison(comparison)).ids()


def test_every_launch_is_a_point(slower: Comparison) -> None:
    (figure,) = [each for each in panel("ratios", slower)["figures"] if each.name == "launches"]
    plot = next(iter(figure.plots.values()))["isolated"]
    base, new = plot.data
    assert len(base["x"]) == len(new["x"]) == 5 * len(SMALL)
    assert max(base["y"]) < 1.1 < min(new["y"])


def test_table_shows_every_number_of_a_row(slower: Comparison) -> None:
    table = panel("table", slower)
    titles = [column.title for column in table["columns"]]
    assert titles[:3] == ["collective", "size", "mode"]
    row, cells = slower.rows[0], dict(zip(titles, table["lines"][0]["cells"], strict=True))
    assert cells["ratio"] == f"{row['ratio']:.2f}x"
    assert (cells["verdict"], cells["rests on"]) == ("slower", "5 and 5 launches")
    assert float(cells["base"]) == pytest.approx(row["base_us"], rel=1e-2)
    assert "beyond the margin" in table["lines"][0]["reason"]


def test_several_arms_make_several_pairs() -> None:
    settings = {**QUIET, "arms": ("a", "b")}
    base = [make_run(Path(f"m{seed}"), seed=seed, **settings) for seed in range(4)]
    new = [make_run(Path(f"t{seed}"), seed=10 + seed, slower={"b": 1.4}, **settings) for seed in range(4)]
    comparison = sides(base, new)
    verdict = panel("verdict", comparison)
    assert [pair["title"] for pair in verdict["pairs"]] == [
        "tuesday:a against monday:a",
        "tuesday:b against monday:b",
    ]
    assert len(verdict["tables"]) == 2
    assert [column.title for column in panel("table", comparison)["columns"]][:2] == ["base", "new"]
    assert len({series.colour for series in Versus(comparison, None).series.values()}) == 4


# --- calibration


def calibrated(label: str, hosts: str, smallest: float, **settings: Any) -> list[Run]:
    known = make_calibration(("all_reduce", 4096, "isolated", smallest)) | {"hosts": [hosts]}
    runs = make_launches(label, 5, calibration=known, **QUIET, **settings)
    for run in runs:
        run.meta["environment"]["hosts"][0]["name"] = hosts
    return runs


def details(comparison: Comparison) -> str:
    """What is said of every case where there is no room for its row."""
    tables = panel("verdict", comparison)["tables"]
    cells = [cell for table in tables for line in table["lines"] for cell in line["cells"]]
    return "\n".join(cell["detail"] for cell in cells if cell is not None)


def test_calibration_in_one_job_is_not_quoted_beside_launches() -> None:
    comparison = sides(calibrated("monday", "hopper", 0.021), calibrated("tuesday", "blackwell", 0.034))
    assert "calibrated" not in details(comparison)
    base, new, of_one_job = panel("verdict", comparison)["calibration"]
    assert base.startswith("The base side: A/A on this machine, ")
    assert "resolves 2.1 %" in base
    assert new.startswith("The new side: A/A on this machine, ")
    assert "resolves 3.4 %" in new
    assert "within one job" in of_one_job
    assert of_one_job in Page(render_comparison(comparison)).text


def test_calibration_of_both_sides_is_quoted_once() -> None:
    comparison = sides(calibrated("monday", "hopper", 0.021), calibrated("tuesday", "hopper", 0.021, seed=7))
    line, of_one_job = panel("verdict", comparison)["calibration"]
    assert line.startswith("A/A on this machine, ")
    assert "within one job" in of_one_job


def test_calibration_is_quoted_beside_arms_of_one_job() -> None:
    known = make_calibration(("all_reduce", 4096, "isolated", 0.021))
    run = make_run(arms=("a", "b"), calibration=known, **{**QUIET, "epochs": 12, "iters": 240})
    comparison = compare_sides(Side([run], "a", "demo:a"), Side([run], "b", "demo:b"))
    assert details(comparison).count("calibrated: 2.1 % can be found in 20 s") == 1
    (line,) = panel("verdict", comparison)["calibration"]
    assert line.startswith("A/A on this machine, ")


def test_page_without_tails_is_drawn() -> None:
    comparison = launches(iters=10)
    (figure,) = [each for each in panel("ratios", comparison)["figures"] if each.name == "shift"]
    plot = next(iter(next(iter(figure.plots.values())).values()))
    assert plot.layout["xaxis"]["ticktext"] == ["p25", "median"]
    assert "p90 needs 10 samples" in plot.note
    assert "tuesday against monday" in Page(render_comparison(comparison)).text
