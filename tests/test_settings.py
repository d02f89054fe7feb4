"""Settings behind a backend: how they are written, who measures them, and what logs say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from report_fixtures import make_unit

from ncclbench.compare.forecast import forecast
from ncclbench.errors import RequestError
from ncclbench.plan import runnable
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.environments import LIBRARIES, check_environments, parse_environment
from ncclbench.plan.model import Arm, Plan
from ncclbench.plan.orders import Order, Orders
from ncclbench.plan.runnable import check_arm
from ncclbench.stats.settings import arm_words
from ncclbench.store.model import Unit
from ncclbench.supervise.settings import check_same
from ncclbench.supervise.teams import SharedEpoch
from ncclbench.tables.settings import SETTINGS, VARIABLES
from ncclbench.terminal.planned import conclusion
from ncclbench.worker import compat, readback
from ncclbench.worker.readback import algorithms, read_back

# As NCCL 2.30.7 writes them (src/misc/param.cc, src/graph/tuning.cc, src/init.cc, src/enqueue.cc).
LOG = """\
host:11:11 [0] NCCL INFO NCCL_ALGO set by environment to Ring
host:11:11 [0] NCCL INFO NCCL_NCHANNELS_PER_PEER set by environment to 4.
host:11:11 [0] NCCL INFO Invalid value 1e99 for NCCL_BUFFSIZE, using default -2.
host:11:11 [0] NCCL INFO Comm config Min CTAs set to 2
host:11:11 [0] NCCL INFO Comm config Max CTAs set to 8
host:11:11 [0] NCCL INFO Comm config maxCTAs reset to NCCL_MAX_CTAS=4
host:11:11 [0] NCCL INFO AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..7}
host:11:11 [0] NCCL INFO AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
host:11:11 [0] NCCL INFO AllReduce [Symmetric]: 4194304 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8
"""


def arms(text: str, device: Any = "cuda") -> tuple[Arm, ...]:
    return parse_arms(None, text, device)


def plan_of(text: str) -> Plan:
    found = arms(text)
    selection = Selection(sizes=(64,), modes=("isolated",))
    return build_plan(selection, found, nranks=2, local_ranks=2, device="cpu", method=Method())


def test_ids_are_short_and_told_apart() -> None:
    text = (
        "nccl2; nccl2 NCCL_ALGO=Ring; nccl2 NCCL_PROTO=LL128 NCCL_ALGO=Tree; nccl2 symm; nccl2 max_ctas=8; "
        "nccl2 NCCL_P2P_DISABLE=1; nccl2 NCCL_SOCKET_IFNAME='=ens1 f0'; nccl2 @new; nccl2 NCCL_ALGO=Ring"
    )
    ids = [arm.id for arm in arms(text)]
    assert ids == [
        "nccl2",
        "nccl2-ring",
        "nccl2-ll128-tree",
        "nccl2-symm",
        "nccl2-max_ctas8",
        "nccl2-p2p_disable1",
        "nccl2-socket_ifname-ens1-f0",
        "nccl2-new",
        "nccl2-ring#2",
    ]
    assert not any(set(each) & set(" :") for each in ids)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nccl2 NCCL_ALGO", "unknown setting of an arm 'NCCL_ALGO'"),
        ("nccl2 nccl_algo=Ring", "unknown setting of an arm"),
        ("nccl2 sym", "did you mean 'symm'?"),
        ("nccl2 symm=1", "symm takes no value"),
        ("nccl2 max_ctas", "write max_ctas=N, from 1 to 1024"),
        ("nccl2 max_ctas=0", "write max_ctas=N"),
        ("nccl2 max_ctas=٣", "write max_ctas=N"),
        ("nccl2 min_ctas=8 max_ctas=4", "min_ctas=8 is more than max_ctas=4"),
        ("nccl2 NCCL_ALGO=Ring NCCL_ALGO=Tree", "sets NCCL_ALGO twice"),
        ("nccl2 NCCL_ALGO=", "NCCL_ALGO has no value"),
        ("nccl2 NCCL_DEBUG=INFO", "NCCL_DEBUG is no setting of an arm"),
        ("nccl2 OMP_NUM_THREADS=1", "OMP_NUM_THREADS is not read when a process group is made"),
        ("nccl2 LD_PRELOAD=x.so", "LD_PRELOAD is not read when a process group is made"),
        ("nccl2 NCCL_NET_PLUGIN=evil", "NCCL_NET_PLUGIN can load code"),
        ("nccl2 'NCCL_ALGO=Ring", "no closing quotation"),
        ("nccl2 @new @old", "two environments"),
        ("nccl2 @", "names no environment"),
        ("nccl2 @../x", "names no environment"),
        ("nccl2 symm hierarchical", "symm is for one"),
        ("gloo max_ctas=4", "max_ctas is a setting of NCCL's process groups"),
        ("gloo NCCL_ALGO=Ring", "NCCL_ALGO changes nothing for gloo: nccl reads it"),
        ("nccl2 GLOO_SOCKET_IFNAME=lo", "GLOO_SOCKET_IFNAME changes nothing for nccl2"),
    ],
)
def test_what_cannot_be_a_setting_is_refused_in_a_line(text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        arms(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_prefix_is_of_somebody_and_every_setting_says_what_it_changes() -> None:
    assert all(readers for readers in VARIABLES.values())
    assert all(setting.description for setting in SETTINGS.values())


def test_arms_share_processes_where_nothing_that_is_read_once_differs() -> None:
    text = "nccl2; nccl2 max_ctas=4; nccl2 NCCL_ALGO=Ring; nccl2 symm; nccl-legacy NCCL_ALGO=Ring; nccl2 @new"
    teams = [[arm.id for arm in team] for team in plan_of(text).teams]
    assert teams == [
        ["nccl2", "nccl2-max_ctas4", "nccl2-symm"],
        ["nccl2-ring", "nccl-legacy-ring"],
        ["nccl2-new"],
    ]


def test_settings_stay_in_a_plan_that_is_written_and_read() -> None:
    plan = plan_of("nccl2; nccl2 NCCL_ALGO=Ring symm; nccl2 @new")
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert again.arms[1].variables == {"NCCL_ALGO": "Ring"}
    assert again.arms[2].environment == "new"


@pytest.mark.parametrize(
    "settings",
    [
        {"LD_PRELOAD": "/tmp/evil.so"},
        {"NCCL_NET_PLUGIN": "evil"},
        {"NCCL_ALGO": ""},
        {"NCCL_ALGO": "Ring\nx"},
        {"@new": "x"},
        {"@../../x": ""},
        {"max_ctas": "-1"},
        {"symm": "1"},
    ],
)
def test_settings_that_no_command_line_gives_are_not_taken_from_a_file(settings: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        check_arm(Arm("nccl2", "nccl2", settings))


def test_environments_are_pythons_or_folders_of_libraries(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    with pytest.raises(RequestError, match="cannot be executed"):
        parse_environment(f"new={python}")
    python.chmod(0o755)
    assert parse_environment(f"new={python}")[1].python == str(python)
    with pytest.raises(RequestError, match="holds no library"):
        parse_environment(f"new={tmp_path}")
    (tmp_path / "libnccl.so.2").touch()
    name, environment = parse_environment(f"new={tmp_path}")
    assert (name, environment.variables[LIBRARIES]) == ("new", str(tmp_path))
    assert environment.variables["LD_PRELOAD"].split(":")[0] == str(tmp_path / "libnccl.so.2")
    for text in ("new", "=x", "new=", "new=/no/such"):
        with pytest.raises(RequestError):
            parse_environment(text)


def test_environments_and_arms_must_name_each_other(tmp_path: Path) -> None:
    (tmp_path / "libx.so").touch()
    there = dict([parse_environment(f"new={tmp_path}")])
    check_environments(arms("nccl2; nccl2 @new"), there)
    with pytest.raises(RequestError, match="arm nccl2-new stands with @new: say where it is"):
        check_environments(arms("nccl2; nccl2 @new"), {})
    with pytest.raises(RequestError, match="--arm-env new is of no arm"):
        check_environments(arms("nccl2"), there)


def test_group_settings_go_into_torch_s_own_options() -> None:
    options = compat.group_options({"max_ctas": "8", "min_ctas": "2", "NCCL_ALGO": "Ring"}, 30.0)
    assert (options.config.max_ctas, options.config.min_ctas) == (8, 2)
    assert options._timeout.total_seconds() == 30
    assert options.is_high_priority_stream is False
    assert compat.group_options({"high_priority": ""}, 30.0).is_high_priority_stream is True
    assert compat.group_options({"NCCL_ALGO": "Ring", "symm": ""}, 30.0) is None


def test_nccl_s_log_says_what_is_in_force() -> None:
    asked = {
        "NCCL_ALGO": "ring",
        "NCCL_NCHANNELS_PER_PEER": "0x4",
        "NCCL_BUFFSIZE": "1e99",
        "NCCL_PROTO": "LL",
        "min_ctas": "2",
        "max_ctas": "8",
    }
    found = {reading["name"]: reading for reading in read_back(asked, SimpleNamespace(), LOG, set())}
    assert {name: reading["in_force"] for name, reading in found.items()} == {
        "NCCL_ALGO": True,
        "NCCL_NCHANNELS_PER_PEER": True,
        "NCCL_BUFFSIZE": False,
        "NCCL_PROTO": None,
        "min_ctas": True,
        "max_ctas": False,
    }
    assert found["max_ctas"]["found"] == "4, by NCCL_MAX_CTAS"
    assert (
        algorithms(LOG) == "AllReduce RING SIMPLE, AllReduce RING LL, AllReduce symmetric AllReduce_AGxLL_R"
    )
    assert algorithms("") is None
    words = arm_words("nccl2-x", {"settings": list(found.values()), "algorithms": None})
    assert "NCCL_ALGO=ring in force, by NCCL's log; " in words
    assert "max_ctas=8 NOT in force: NCCL's log says 4, by NCCL_MAX_CTAS" in words
    assert "NCCL_PROTO=LL not read back: NCCL's log does not name it" in words
    assert arm_words("nccl2", {"reason": "no GPU", "settings": []}) == "nccl2: cannot be had: no GPU"


def test_what_nccl_s_log_writes_otherwise_than_it_was_asked_is_in_force_all_the_same() -> None:
    log = (
        "h:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to PIX\n"
        "h:1:1 [0] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to SYS\n"
        "h:1:1 [0] NCCL INFO NCCL_NTHREADS set by environment to 256.\n"
        "h:1:1 [0] NCCL INFO NCCL_MIN_NCHANNELS set by environment to 8.\n"
        "h:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0,mlx5_1\n"
    )
    asked = {
        "NCCL_P2P_LEVEL": "1",
        "NCCL_NET_GDR_LEVEL": "7",
        "NCCL_NTHREADS": "0400",
        "NCCL_MIN_NCHANNELS": "010x",
        "NCCL_IB_HCA": "mlx5_0,mlx5_1",
    }
    readings = read_back(asked, SimpleNamespace(), log, set())
    assert [reading["in_force"] for reading in readings] == [True, True, True, False, True]
    (other,) = read_back({"NCCL_P2P_LEVEL": "2"}, SimpleNamespace(), log, set())
    assert other["in_force"] is False


def test_nccl_caps_thread_blocks_and_only_an_arm_s_own_words_are_of_it() -> None:
    log = (
        "h:1:1 [0] NCCL INFO Comm config Max CTAs set to 1024\n"
        "h:1:1 [0] NCCL INFO maxCTAs 1024 is larger than #channels upper limit 64, cap it to 64\n"
    )
    own = (
        "h:1:1 [0] NCCL INFO Comm config Min CTAs set to 8\n"
        "h:1:1 [0] NCCL INFO Comm config Max CTAs set to 16\n"
        "h:1:1 [0] NCCL INFO Comm config maxCTAs reset to NCCL_MAX_CTAS=4\n"
        "h:1:1 [0] NCCL INFO minCTAs 8 is larger than maxCTAs 4, set both to 4\n"
    )
    (capped,) = read_back({"max_ctas": "1024"}, SimpleNamespace(), log, set())
    assert (capped["found"], capped["in_force"]) == ("64", False)
    least, most = read_back(
        {"min_ctas": "8", "max_ctas": "16"}, SimpleNamespace(), log + own, set(), len(log)
    )
    assert (least["found"], least["in_force"]) == ("4", False)
    assert (most["found"], most["in_force"]) == ("4, by NCCL_MAX_CTAS", False)


def test_ids_are_as_long_as_plans_may_have_them() -> None:
    word = "a" * 200
    many = " ".join(f"NCCL_V{number}=Word{'x' * 20}" for number in range(8))
    found = arms(f"nccl2 NCCL_X={word}; nccl2 NCCL_Y={word}; nccl2 {many}; nccl2 {many} symm")
    assert len({arm.id for arm in found}) == 4
    assert all(runnable._ARM.fullmatch(arm.id) for arm in found)


def test_a_run_is_not_gone_on_with_in_another_environment() -> None:
    def said(found: str) -> dict[str, Any]:
        reading = {"name": "@new", "asked": "", "found": found, "in_force": True, "how": "x"}
        return {"reason": None, "settings": [reading], "algorithms": None}

    meta = {"gloo-new": said("torch 2.13.0")}
    check_same({"gloo-new": said("torch 2.13.0")}, meta, {"gloo-new"})
    check_same({"gloo-new": said("torch 2.15.0")}, meta, set())
    check_same({"gloo-new": said("torch 2.15.0")}, {"gloo-new": {}}, {"gloo-new"})
    with pytest.raises(RequestError, match=r"measured with torch 2\.13\.0, and @new is torch 2\.15\.0 now"):
        check_same({"gloo-new": said("torch 2.15.0")}, meta, {"gloo-new"})


def test_without_a_log_the_group_s_own_options_tell() -> None:
    options = compat.group_options({"max_ctas": "8", "high_priority": ""}, 30.0)
    backend = SimpleNamespace(options=options)
    readings = read_back({"max_ctas": "8", "high_priority": "", "min_ctas": "3"}, backend, "", set())
    assert [reading["in_force"] for reading in readings] == [True, True, False]


def test_a_variable_that_nobody_tells_of_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readback, "local_addresses", lambda: {"127.0.0.1"})
    names = {"TORCH_GLOO_LAZY_INIT": "1", "GLOO_SOCKET_IFNAME": "lo"}
    lazy, interface = read_back(names, SimpleNamespace(), "", set())
    assert (lazy["found"], lazy["in_force"]) == (None, None)
    assert (interface["found"], interface["in_force"]) == ("lo", True)


def test_teams_make_one_epoch_of_their_parts() -> None:
    order = Order(case=0, visits=2, operations=4, level_us=None, until_s=None)
    epoch = SharedEpoch(Orders(3, (order, replace(order, case=2))))
    assert epoch.orders_for([1]) is None
    told = epoch.orders_for([0, 1])
    assert told is not None
    assert [each.case for each in told.cases] == [0]

    generator = np.random.default_rng(0)
    case = plan_of("nccl2").planned[0]

    def unit(arm: str, turns: tuple[int, ...]) -> Unit:
        return replace(make_unit(generator, case, arm, 3, 1, 100.0, 4, 2), turns=turns)

    first = epoch.add("k", [unit("a", (0, 2)), unit("b", (1, 3))], 0.5)
    second = epoch.add("k", [unit("c", (0, 1))], 0.25)
    assert [each.turns for each in (*first, *second)] == [(0, 2), (1, 3), (4, 5)]
    ((key, units, seconds),) = epoch.measured()
    assert (key, [each.arm for each in units], seconds) == ("k", ["a", "b", "c"], 0.75)


def test_a_plan_counts_the_starts_of_its_teams_and_promises_nothing_for_them() -> None:
    calibration = {"group_s": 0.25, "process_s": 2.0, "resolution": []}
    beside, apart = (
        forecast(plan_of(text), calibration) for text in ("gloo; gloo", "gloo; gloo GLOO_SOCKET_IFNAME=lo")
    )
    assert beside.rows[0]["overhead_s"] == 0.5
    assert apart.rows[0]["overhead_s"] == 4.5
    words = conclusion(plan_of("gloo; gloo GLOO_SOCKET_IFNAME=lo"), apart, calibration)
    assert "arms in 2 sets of processes, in turns: what difference that finds no calibration tells" in words
