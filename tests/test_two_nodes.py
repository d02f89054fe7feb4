"""Two kinds of nodes: what is compared, what is confounded with it, and where each side's latency ends."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launching import launch, launches
from report_reading import Page
from two_nodes import BLACKWELL, HOPPER, NODE_SIZES, change_gpus, node_run, node_time_us, on_nodes

from ncclbench.cli.app import run as run_command
from ncclbench.compare.confounded import Confounded, confounded
from ncclbench.compare.fits import FitPair, fit_pairs
from ncclbench.compare.launches import Comparison, compare_sides
from ncclbench.compare.sides import Side
from ncclbench.report.build import render_comparison
from ncclbench.stats.fits import run_fits
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_unit
from ncclbench.store.model import Run, UnitHealth

FEW: dict[str, Any] = {"ops": ("all_reduce",), "modes": ("back-to-back",), "epochs": 4, "iters": 20}


def nodes(base: list[Run], new: list[Run]) -> Comparison:
    return compare_sides(Side(base, None, "hopper"), Side(new, None, "blackwell"))


def one_each(**settings: Any) -> Comparison:
    own = {**FEW, **settings}
    return nodes([node_run(HOPPER, "hopper-01", **own)], [node_run(BLACKWELL, "blackwell-01", seed=2, **own)])


def told(comparison: Comparison) -> Confounded:
    return confounded(comparison)


def names(found: Confounded) -> list[str]:
    return [other.what for other in found.others]


# --- what is compared, and what is confounded with it


def test_gpus_are_the_subject_and_what_could_be_made_equal_is_not() -> None:
    found = told(one_each())
    assert found.subject is not None
    assert (found.subject.what, found.subject.base, found.subject.new) == (
        "GPU",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA B200",
    )
    # A clock that nobody set comes with the GPU; a power limit below its default does not.
    assert names(found) == ["power limit (W)", "driver", "NCCL", "CPU", "kernel"]
    warning = found.warning()
    assert warning is not None
    assert warning.startswith(
        "also different: power limit (W) 700 -> 850, driver 570.86.15 -> 580.65.06, NCCL 2.27.5"
    )
    assert warning.endswith(": the effect cannot be told apart from these")


def test_a_clock_that_was_set_is_confounded() -> None:
    run = change_gpus(node_run(BLACKWELL, "blackwell-01", seed=2, **FEW), sm_clock_set_mhz=1410)
    found = told(nodes([node_run(HOPPER, "hopper-01", **FEW)], [run]))
    assert found.others[0].text("->") == "SM clock set (MHz) 1980 -> 1410"


def test_equal_gpus_leave_the_nodes_and_a_driver_stands_beside_them() -> None:
    run = change_gpus(node_run(HOPPER, "hopper-02", seed=2, **FEW), driver="580.65.06")
    found = told(nodes([node_run(HOPPER, "hopper-01", **FEW)], [run]))
    assert found.compared() == "compared: nodes hopper-01 -> hopper-02"
    assert found.warning() == (
        "also different: driver 570.86.15 -> 580.65.06: the effect cannot be told apart from this"
    )


def test_equal_nodes_are_told_to_be_equal() -> None:
    found = told(nodes([node_run(HOPPER, "h1", **FEW)], [node_run(HOPPER, "h2", seed=2, **FEW)]))
    assert found.compared() == "compared: nodes h1 -> h2, and nothing else is known to differ that matters"
    assert found.warning() is None


def test_the_only_thing_that_differs_on_one_host_is_the_subject() -> None:
    base = node_run(HOPPER, "hopper-01", **FEW)
    new = change_gpus(node_run(HOPPER, "hopper-01", seed=2, **FEW), driver="580.65.06")
    found = told(nodes([base], [new]))
    assert found.compared() == (
        "compared: driver 570.86.15 -> 580.65.06, and nothing else is known to differ that matters"
    )
    assert found.warning() is None
    new.meta["environment"]["common"]["variables"]["NCCL_ALGO"] = "Ring"
    both = told(nodes([base], [new]))
    assert both.compared() is None
    assert both.warning() == (
        "different: driver 570.86.15 -> 580.65.06, NCCL_ALGO (none) -> Ring: "
        "the effect cannot be told apart between these"
    )


def test_where_ranks_sit_is_confounded() -> None:
    base, new = node_run(HOPPER, "h1", **FEW), node_run(HOPPER, "h2", seed=2, **FEW)
    environment = new.meta["environment"]
    environment["hosts"].append({**environment["hosts"][0], "name": "h3"})
    for rank in environment["ranks"][4:]:
        rank["host"] = 1
    found = told(nodes([base], [new]))
    assert found.others[-1].text("->") == "rank placement 8 ranks on 1 host -> 8 ranks on 2 hosts"


def test_throttled_gpus_are_told_before_anything_else() -> None:
    base, new = node_run(HOPPER, "h1", **FEW), node_run(HOPPER, "h2", seed=2, **FEW)
    held = UnitHealth(over_us=1e6, read_us=100.0, reasons=("software power cap",))
    key = next(iter(new.units))
    new.units[key][0] = replace(new.units[key][0], health=(None, None, None, held, None, None, None, None))
    comparison = nodes([base], [new])
    found = told(comparison)
    assert found.others[0].text("->") == "throttled none -> rank 3 (software power cap)"
    assert f"NEW: {new.folder} was throttled on rank 3 (software power cap)" in comparison.notes


def test_two_arms_of_one_job_are_the_subject_and_nothing_stands_beside_them() -> None:
    run = launch(1, arms=("gloo", "gloo#2"))
    found = told(compare_sides(Side([run], "gloo", "old"), Side([run], "gloo#2", "young")))
    assert found.compared() is not None
    assert "gloo -> gloo#2" in str(found.compared())
    assert found.warning() is None


def test_environment_that_was_not_recorded_is_no_equal_environment() -> None:
    base, new = launches((1.0,)), launches((1.0,), 50)
    base[0].meta["environment"] = None
    warning = told(nodes(base, new)).warning()
    assert warning == "the environment of base was not recorded, so what else differs is not known"


def test_outputs_of_other_tools_do_not_tell_what_else_differs() -> None:
    """Even where both name their GPUs and hosts, and nothing of that is unlike."""
    base, new = node_run(HOPPER, "h1", **FEW), node_run(HOPPER, "h2", seed=2, **FEW)
    new.meta["kind"] = "import"
    comparison = Comparison(Side([base], None, "hopper"), Side([new], None, "log"), [], [], [], [], [])
    found = told(comparison)
    assert "nothing else is known to differ" not in str(found.compared())
    assert str(found.warning()).endswith(
        "what new was imported from does not tell drivers, clocks or settings, so what else differs is "
        "not known"
    )
    base.meta["kind"] = "import"
    assert "what base and new were imported from does not tell" in str(told(comparison).warning())
    alone = replace(comparison, new=replace(comparison.base, arm="nccl-tests#2"))
    assert "what base and new were imported from" in str(told(alone).warning()), "two logs in one run"


def test_a_setting_that_was_hidden_on_both_sides_may_differ() -> None:
    base, new = node_run(HOPPER, "h1", **FEW), node_run(HOPPER, "h2", seed=2, **FEW)
    for run in (base, new):
        run.meta["environment"]["common"].setdefault("variables", {})["NCCL_TOPO_FILE"] = "(not recorded)"
    found = told(nodes([base], [new]))
    assert found.compared() == "compared: nodes h1 -> h2"
    assert found.warning() == "NCCL_TOPO_FILE was not recorded on either side, so it may differ too"


# --- where latency ends


def pair_of(comparison: Comparison, mode: str = "back-to-back") -> FitPair:
    (pair,) = [pair for pair in fit_pairs(comparison) if pair.row["mode"] == mode]
    return pair


def test_back_to_back_times_are_never_called_a_latency() -> None:
    """Operations in a row overlap: each of them lasts longer than the time it adds."""
    words = {"isolated": "latency", "back-to-back": "time per operation, back to back"}
    comparison = one_each(modes=tuple(words))
    for pair in fit_pairs(comparison):
        for entry in pair.to_json():
            assert entry["latency_is"] == words[entry["mode"]]
    page = Page(render_comparison(one_each()))
    panel = page.text[page.text.index("Where size begins to count") :].partition("What each side is")[0]
    assert words["back-to-back"] in panel
    assert not re.search(r"latency(?! where each operation is waited for)", panel)


def test_both_sides_are_fitted_near_to_their_truth() -> None:
    pair = pair_of(one_each(epochs=12, iters=60))
    for fit, node in ((pair.base, HOPPER), (pair.new, BLACKWELL)):
        assert fit is not None
        assert (fit.unit, fit.fit.units, len(fit.fit.segments)) == ("epochs", 12, 2)
        figures, factor = fit.fit.figures, fit.factor
        assert figures["latency_us"].value == pytest.approx(node.latency_us, rel=0.05)
        assert factor is not None
        assert figures["bandwidth_GBs"].value is not None
        assert figures["bandwidth_GBs"].value * factor == pytest.approx(node.busbw_GBs, rel=0.05)
        assert fit.fit.segments[1].first_bytes == node.switch_bytes
        half = figures["half_bytes"].value
        assert half is not None
        assert half / node_time_us(node, "all_reduce", int(half)) == pytest.approx(
            node.busbw_GBs / factor / 2 * 1e3, rel=0.05
        )


def test_intervals_of_several_launches_are_over_launches() -> None:
    base = [node_run(HOPPER, "h1", seed=seed, **FEW) for seed in range(4)]
    new = [node_run(HOPPER, "h2", seed=10 + seed, **FEW) for seed in range(4)]
    pair = pair_of(nodes(base, new))
    for fit in (pair.base, pair.new):
        assert fit is not None
        assert (fit.unit, fit.fit.units) == ("launches", 4)


def test_intervals_of_three_nodes_are_over_nodes() -> None:
    base = on_nodes(HOPPER, ("h1", "h2", "h3"), 2, **FEW)
    new = on_nodes(BLACKWELL, ("b1", "b2", "b3"), 2, seed=100, **FEW)
    comparison = nodes(base, new)
    assert {row["unit"] for row in comparison.rows} == {"nodes"}
    pair = pair_of(comparison)
    assert pair.base is not None
    assert (pair.base.unit, pair.base.fit.units) == ("nodes", 3)


def test_sizes_of_which_data_were_wrong_or_failed_are_left_out() -> None:
    run = node_run(HOPPER, "h1", **FEW)
    keys = list(run.units)
    run.units[keys[0]] = [replace(unit, wrong=(1,) * 8) for unit in run.units[keys[0]]]
    run.statuses[keys[1]] = ("failed", "a rank died")
    (fit,) = run_fits(run)
    assert fit.fit.sizes == len(NODE_SIZES) - 2


def test_epochs_that_lack_a_size_are_left_out() -> None:
    run = node_run(HOPPER, "h1", **FEW)
    del run.units[list(run.units)[5]][1]
    (fit,) = run_fits(run)
    assert (fit.fit.sizes, fit.fit.units) == (len(NODE_SIZES), 3)


def test_fits_as_plain_data_say_everything_once() -> None:
    (fit,) = run_fits(node_run(HOPPER, "h1", **FEW))
    row = fit.to_json()
    assert json.loads(json.dumps(row)) == row
    assert (row["op"], row["arm"], row["mode"], row["statistic"]) == (
        "all_reduce",
        "nccl2",
        "back-to-back",
        "median",
    )
    assert row["latency_us_low"] < row["latency_us"] < row["latency_us_high"]
    assert row["busbw_GBs"] == pytest.approx(row["bandwidth_GBs"] * 7 / 4)
    assert [segment["first_bytes"] for segment in row["segments"]] == [8, HOPPER.switch_bytes]
    (short,) = run_fits(node_run(HOPPER, "h1", **{**FEW, "sizes": NODE_SIZES[:5]}))
    assert short.to_json()["reason"] == "5 sizes: a fit needs 6"


# --- on the command line


def written(run: Run, folder: Path) -> Path:
    with RunFolder.create(folder) as kept:
        kept.write_meta(run.meta)
        with kept.samples() as samples:
            for units in run.units.values():
                samples.append(b"".join(encode_unit(unit) for unit in units))
    return folder


def test_command_tells_what_is_confounded_and_where_latency_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hopper = written(node_run(HOPPER, "hopper-01", **FEW), tmp_path / "hopper")
    blackwell = written(node_run(BLACKWELL, "blackwell-01", seed=2, **FEW), tmp_path / "blackwell")
    assert run_command(["compare", str(hopper), str(blackwell)]) == 0
    lines = capsys.readouterr().out.splitlines()
    warned = next(number for number, line in enumerate(lines) if "cannot be told apart" in line)
    assert lines[warned - 1].startswith("# compared: GPU NVIDIA H100 80GB HBM3 -> NVIDIA B200")
    assert lines[-1].startswith("no verdict on 28 cases (typically 0.6")
    assert warned < len(lines) - 1
    assert run_command(["compare", str(hopper), str(blackwell), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["subject"]["what"] == "GPU"
    assert {"what": "driver", "base": "570.86.15", "new": "580.65.06"} in answer["confounded"]
    assert [fit["side"] for fit in answer["fits"]] == ["base", "new"]
    assert answer["fits"][0]["latency_us"] == pytest.approx(HOPPER.latency_us, rel=0.05)
