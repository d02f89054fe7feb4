"""``ncclbench plan --machine``, ``--out`` and ``ncclbench sweep --plan``: just that, or one line why not."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from searching import under_launcher
from sweeping import Outcome, run, sweep

from ncclbench.cli import values
from ncclbench.errors import RequestError
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.machine import Machine
from ncclbench.plan.model import Injection, Plan
from ncclbench.plan.packed import packed_plan, unpacked_plan
from ncclbench.plan.runnable import check_hosts, check_runnable
from ncclbench.store.plans import PlanFile, load_plan, write_plan
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.topologies import Placement

PLAN = (sys.executable, "-m", "ncclbench", "plan", "--backends", "gloo")
BRIEF = ("--sizes", "8,4K", "--modes", "isolated", "-n", "4", "--epochs", "2")
HOST = Machine("host", "cpu", 8, memory_bytes=64 << 30)
MACHINE = 'name = "big"\ndevice = "cuda"\nranks_per_host = 8\ngpu_memory = "141G"\n'


def plan_of(**selection: Any) -> Plan:
    arms = parse_arms(None, selection.pop("arms", "gloo"), "cpu")
    nranks, method = selection.pop("nranks", 4), selection.pop("method", None)
    topologies = values.topologies(selection.pop("topologies", "world"), "--topologies")
    chosen = Selection(**{"sizes": (64, 1024), "modes": ("isolated",), "topologies": topologies, **selection})
    local_ranks = min(2, nranks)
    return build_plan(
        chosen, arms, nranks=nranks, local_ranks=local_ranks, device="cpu", method=method, machine=HOST
    )


def kept(plan: Plan, path: Path) -> Path:
    write_plan(path, plan, HOST, 2, ["ncclbench", "plan"])
    return path


def one_line(outcome: Outcome, said: str) -> None:
    assert outcome.code == 2, outcome.err
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert outcome.out == ""


class TestMachineOption:
    def test_hosts_follow_from_its_ranks_and_what_does_not_fit_is_skipped(self, tmp_path: Path) -> None:
        file = tmp_path / "big.toml"
        file.write_text(MACHINE)
        options = ("--backends", "nccl2", "--modes", "isolated", "--sizes", "1G,128G", "--world-size", "64")
        outcome = run(*PLAN[:4], *options, "--machine", file, "--json")
        document = outcome.document
        assert outcome.code == 0, outcome.err
        assert (document["nranks"], document["hosts"]) == (64, 8)
        assert document["machine"]["name"] == "big"
        assert [row["status"] for row in document["rows"]] == ["planned", "skipped"]
        assert "141.0 GiB of a GPU" in document["rows"][1]["reason"]
        assert document["rows"][1]["bytes_per_rank"] > 141 << 30 > document["bytes_per_rank"]
        text = run(*PLAN[:4], *options, "--machine", file).out
        assert text.startswith("# 8 hosts like big with 8 ranks each\n")

    def test_only_where_nothing_fits_it_is_an_error(self, tmp_path: Path) -> None:
        file = tmp_path / "big.toml"
        file.write_text(MACHINE)
        command = (*PLAN[:4], "--backends", "nccl2", "--sizes", "1T", "--machine", file)
        one_line(run(*command), "does not fit into the 141.0 GiB of a GPU (2); lower -e/--max-bytes")

    def test_from_what_env_tells(self, tmp_path: Path) -> None:
        file = tmp_path / "env.json"
        file.write_text(run(sys.executable, "-m", "ncclbench", "env", "--nproc-per-node", "3", "--json").out)
        document = run(*PLAN, *BRIEF, "--machine", file, "--world-size", "6", "--json").document
        assert (document["hosts"], document["machine"]["ranks_per_host"]) == (2, 3)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--nproc-per-node", "9"), "more than the 8 ranks that a host of"),
            (("--backends", "ucc"), ""),
            (("--machine", "none.toml"), "none.toml is not there"),
        ],
    )
    def test_refused(self, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
        file = tmp_path / "big.toml"
        file.write_text(MACHINE)
        outcome = run(*PLAN[:4], *BRIEF, "--machine", file, *options)
        if said:
            one_line(outcome, said)
        else:
            assert outcome.code == 0

    def test_gpu_arms_on_a_machine_without_are_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "small.toml"
        file.write_text('name = "small"\ndevice = "cpu"\nranks_per_host = 8\n')
        command = (*PLAN[:4], "--backends", "nccl2", *BRIEF, "--machine", file)
        one_line(run(*command), "nccl2 needs a GPU and none is in small")


class TestOutOption:
    def test_a_link_is_followed_and_a_loop_is_not(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("plan.json")
        (tmp_path / "loop").symlink_to("loop")
        assert run(*PLAN, *BRIEF, "--out", "link", cwd=tmp_path).code == 0
        assert (tmp_path / "link").is_symlink()
        assert load_plan(tmp_path / "plan.json").plan.planned
        one_line(run(*PLAN, *BRIEF, "--out", "loop", cwd=tmp_path), "is a link that is not followed")


class TestSweepOfAPlan:
    def test_it_runs_exactly_that_and_says_where_it_came_from(self, tmp_path: Path) -> None:
        file, folder = tmp_path / "mine.json", tmp_path / "run"
        options = ("--ops", "all_gather,barrier", "--topologies", "world,pairs", *BRIEF, "--seed", "7")
        planned = run(*PLAN, *options, "--nproc-per-node", "2", "--out", file)
        assert planned.code == 0, planned.err
        assert f"run it with ncclbench sweep --plan {file}" in planned.out
        outcome = sweep("--plan", file, "--out", folder, "--label", "from a file", "--json")
        assert outcome.code == 0, outcome.err
        meta = json.loads((folder / "run.json").read_text())
        assert meta["plan"] == json.loads(file.read_text())["plan"]
        assert (meta["plan_file"], meta["label"]) == ("mine.json", "from a file")
        wanted = [(case.key, "ok") for case in load_plan(file).plan.planned]
        rows = [row for row in outcome.document["rows"] if row["status"] == "ok"]
        assert len(rows) == len(wanted)
        assert sweep("--resume", folder, "--json").document["rows"] == outcome.document["rows"]

    def test_as_many_ranks_as_planned_are_started_on_one_machine(self, tmp_path: Path) -> None:
        file = tmp_path / "three.json"
        run(*PLAN, *BRIEF, "--nproc-per-node", "3", "--out", file)
        document = sweep("--plan", file, "--out", tmp_path / "run", "--json").document
        assert {row["nranks"] for row in document["rows"]} == {3}

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("-b", "8"), "leave --min-bytes away"),
            (("--arms", "gloo", "--epochs", "3"), "leave --arms, --epochs away"),
            (("--timeout", "5s"), "leave --timeout away"),
            (("--resume", "some"), "leave --plan, --out away"),
            (("--nproc-per-node", "3"), "is for 2 ranks, here are 3"),
        ],
    )
    def test_nothing_else_says_what_is_measured(
        self, tmp_path: Path, options: tuple[str, ...], said: str
    ) -> None:
        file = kept(plan_of(nranks=2), tmp_path / "plan.json")
        one_line(sweep("--plan", file, "--out", tmp_path / "run", *options), said)
        assert not (tmp_path / "run").exists()

    def test_a_plan_for_several_hosts_wants_a_launcher(self, tmp_path: Path) -> None:
        file = kept(plan_of(nranks=4), tmp_path / "plan.json")
        one_line(sweep("--plan", file), "for 4 ranks on 2 hosts: start them with torchrun")

    def test_under_a_launcher_the_file_of_rank_0_counts(self, tmp_path: Path) -> None:
        folders = [tmp_path / "rank0", tmp_path / "rank1"]
        for folder in folders:
            folder.mkdir()
        plan = plan_of(nranks=2, sizes=(64,), method=Method(iters=4, epochs=2))
        kept(plan, folders[0] / "plan.json")
        (folders[1] / "plan.json").write_text("nothing of the kind")
        first, second = under_launcher(2, "sweep", "--plan", "plan.json", "--json", folders=folders)
        assert (first.code, second.code) == (0, 0), first.err + second.err
        assert [row["nbytes"] for row in first.document["rows"]] == [64]
        assert second.out == ""

    def test_under_a_launcher_all_end_alike_where_it_is_none(self, tmp_path: Path) -> None:
        file = kept(plan_of(nranks=4), tmp_path / "plan.json")
        first, second = under_launcher(2, "sweep", "--plan", file)
        assert (first.code, second.code) == (2, 2)
        assert "for 4 ranks on 2 hosts, here are 2" in first.err
        assert second.err == ""


class TestHosts:
    def test_groups_of_other_hosts_are_refused(self) -> None:
        for topology in ("node", "cross-node"):
            plan = plan_of(topologies=topology)
            check_hosts(plan, Placement((0, 0, 1, 1)), "cpu", HOST, 2)
            with pytest.raises(RequestError, match=rf"groups of {topology} .* \(4 with 1 ranks? each\)"):
                check_hosts(plan, Placement((0, 1, 2, 3)), "cpu", HOST, 1)

    def test_tiers_of_other_hosts_are_refused(self) -> None:
        plan = plan_of(arms="gloo; gloo hierarchical")
        check_hosts(plan, Placement((0, 0, 1, 1)), "cpu", HOST, 2)
        with pytest.raises(RequestError, match=r"its groups of hierarchical@host"):
            check_hosts(plan, Placement((0, 1, 0, 1)), "cpu", HOST, 2)

    def test_groups_that_do_not_hang_on_hosts_run_anywhere(self) -> None:
        plan = plan_of(topologies="pairs,mesh:a=2,b=2")
        check_hosts(plan, Placement((0, 1, 2, 3)), "cpu", HOST, 1)

    def test_less_memory_and_no_gpu_are_refused(self) -> None:
        small = Machine("small", "cpu", 4, memory_bytes=1 << 20)
        with pytest.raises(RequestError, match=r"largest case needs .* plan it anew"):
            check_hosts(plan_of(), Placement((0, 0, 0, 0)), "cpu", small, 4)
        graph = build_plan(
            Selection(sizes=(8,), modes=("graph",)),
            parse_arms("nccl2", None, "cuda"),
            nranks=2,
            local_ranks=2,
            device="cuda",
        )
        with pytest.raises(RequestError, match="measures graph, which needs CUDA"):
            check_hosts(graph, Placement((0, 0)), "cpu", HOST, 2)


def everything() -> Plan:
    return plan_of(
        ops=tuple(COLLECTIVES),
        dtypes=tuple(DTYPES),
        redops=tuple(REDOPS),
        roots=None,
        topologies="all,mesh:dp=2,tp=2",
        async_op=(False, True),
        in_place=(False, True),
        arms="gloo; gloo; gloo hierarchical",
        method=Method(precision=0.02, injection=Injection("gloo#2", (1,), None, 0.1)),
    )


def test_every_plan_that_we_make_can_be_read_and_run(tmp_path: Path) -> None:
    for plan in (everything(), plan_of(nranks=1), plan_of(method=Method(check=0, warmup_iters=0))):
        assert load_plan(kept(plan, tmp_path / "plan.json")) == PlanFile(
            "plan.json", plan, min(2, plan.nranks)
        )


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(fields: dict[str, Any]) -> None:
        *above, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in above:
            fields = fields[step]  # type: ignore[index]
        fields[last] = value  # type: ignore[index]

    return apply


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("kind", "sweep", "is no plan"),
        ("schema", 99, "written by a newer ncclbench"),
        ("schema", None, "no schema number"),
        ("local_ranks", 0, "no plan this ncclbench can read"),
        ("plan", [], "Expected `object`, got `array`"),
        ("plan.nranks", 1 << 40, "nranks is"),
        ("plan.epochs", 0, "epochs is 0"),
        ("plan.iters", -5, "iters is -5"),
        ("plan.timeout_s", 0, "timeout_s is 0"),
        ("plan.seed", -1, "seed is -1"),
        ("plan.rotation_bytes", 1 << 60, "rotation_bytes is"),
        ("plan.arms.0.backend", "no-such", "unknown backend"),
        ("plan.arms.0.settings", {"rm": "-rf"}, "unknown setting of an arm 'rm=-rf'"),
        ("plan.cases.0.op", "exec", "unknown operation"),
        ("plan.cases.0.nbytes", 65, "has no such size"),
        ("plan.cases.0.count", 3, "has no such size"),
        ("plan.cases.0.bytes_per_rank", 8, "needs other memory than it says"),
        ("plan.cases.0.nranks", 2, "another number of ranks"),
        ("plan.cases.0.root", 0, "has a root that nobody is"),
        ("plan.cases.0.redop", None, "has an operator it cannot have"),
        ("plan.cases.0.redop", "bxor", "has an operator it cannot have"),
        ("plan.cases.0.in_place", False, "has a form that torch has not"),
        ("plan.cases.0.topology", "node", "the plan has no 'node'"),
        ("plan.cases.0.status", "skipped", "skipped for no reason"),
        ("plan.cases", [], "none of its cases is planned"),
        ("plan.arms", [], "its arms are []"),
        ("plan.injection", {"arm": "x", "ranks": None, "us": 1.0, "fraction": None}, "slows an arm 'x'"),
    ],
)
def test_what_no_plan_of_ours_says_is_one_line(tmp_path: Path, path: str, value: Any, said: str) -> None:
    file = kept(plan_of(), tmp_path / "plan.json")
    fields = json.loads(file.read_text())
    change(path, value)(fields)
    file.write_text(json.dumps(fields))
    with pytest.raises(RequestError) as raised:
        load_plan(file)
    assert said in str(raised.value)
    assert str(file) in str(raised.value)
    assert str(raised.value).isprintable()


def test_the_same_case_twice_is_refused() -> None:
    fields = plan_of().to_json()
    fields["cases"].append(fields["cases"][0])
    with pytest.raises(RequestError, match="twice"):
        check_runnable(Plan.from_json(fields))


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3.5, 1e308, 1 << 62, 1 << 70, "", "x", "../../etc", "\x1b[31m", "a\nb"),
    *([], {}, [[]], [-1], {"a": 1}, "9" * 400),
)


def mutated(fields: Any, generator: random.Random) -> Any:
    """One value somewhere replaced, removed or doubled."""
    place = fields
    for _ in range(generator.randint(1, 6)):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return fields
        key = generator.choice(keys)
        if not isinstance(place[key], dict | list) or generator.random() < 0.2:
            break
        place = place[key]
    else:
        return fields
    what = generator.random()
    if what < 0.2:
        del place[key]
    elif what < 0.3 and isinstance(place, list):
        place.append(place[key])
    else:
        place[key] = generator.choice(HOSTILE)
    return fields


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_a_line_or_a_plan_that_holds_together(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    file = kept(
        plan_of(topologies="world,node,mesh:a=2,b=2", arms="gloo; gloo hierarchical"), tmp_path / "p.json"
    )
    whole = file.read_text()
    refused = []
    for _ in range(250):
        file.write_text(json.dumps(mutated(json.loads(whole), generator)))
        try:
            plan = load_plan(file).plan
            check_hosts(plan, Placement((0, 0, 1, 1)), "cpu", HOST, 2)
        except RequestError as error:
            refused.append(str(error))
            continue
        assert all(math.isfinite(case.nbytes) and case.count > 0 for case in plan.planned)
        assert plan.nranks == 4
    assert all(line.isprintable() for line in refused)
    assert 50 < len(refused) < 250


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"kind":"plan"}', b"[" * 200_000]
)
def test_what_is_no_plan_at_all_is_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=r"plan\.json (is not|is no|cannot)"):
        load_plan(file)


class TestPacked:
    @pytest.mark.parametrize("nranks", [4, 64, 16_384])
    def test_ranks_are_told_the_same_plan_in_few_bytes(self, nranks: int) -> None:
        plan = plan_of(
            topologies=f"all,mesh:a={nranks // 4},b=2,c=2", arms="gloo; gloo hierarchical", nranks=nranks
        )
        fields = packed_plan(plan)
        assert unpacked_plan(json.loads(json.dumps(fields))) == plan
        # 17 lists of groups; in plain numbers those of 16,384 ranks take 1.6 MB.
        assert len(json.dumps(fields["groups"])) < 6000

    def test_groups_from_a_file_can_be_anything(self, tmp_path: Path) -> None:
        ranks = list(range(64))
        random.Random(1).shuffle(ranks)
        (tmp_path / "some").write_text(
            "\n".join(" ".join(map(str, ranks[at : at + 4])) for at in range(0, 60, 4))
        )
        plan = plan_of(topologies=f"file:{tmp_path / 'some'}", nranks=64)
        assert unpacked_plan(packed_plan(plan)) == plan
