"""Topologies: the groups that each makes of a placement, why it makes none, and how a plan holds them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from ncclbench.cli import values
from ncclbench.errors import RequestError
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.build import Selection, build_plan
from ncclbench.plan.model import Arm, Plan
from ncclbench.tables.settings import TIER_OF_HOST, TIER_OF_LEADERS
from ncclbench.tables.topologies import TOPOLOGIES, Groups, Placement, parse_topology
from ncclbench.worker.cuts import part_of, parts_of


def groups(text: str, place: Placement) -> Groups | str:
    (cut,) = parse_topology(text)
    return cut.groups(place)


def names(text: str) -> list[str]:
    return [cut.name for cut in values.topologies(text, "--topologies")]


def plan_of(
    topologies: str,
    *,
    nranks: int = 4,
    local_ranks: int = 4,
    place: Placement | None = None,
    arms: str = "gloo",
) -> Plan:
    return build_plan(
        Selection(
            sizes=(1024,), modes=("isolated",), topologies=values.topologies(topologies, "--topologies")
        ),
        parse_arms(None, arms, "cpu"),
        nranks=nranks,
        local_ranks=local_ranks,
        device="cpu",
        placement=place,
    )


TWO_HOSTS = Placement((0, 0, 0, 0, 1, 1, 1, 1))
ROUND_ROBIN = Placement((0, 1, 0, 1, 0, 1))
UNEVEN = Placement((0, 0, 0, 1))


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("world", TWO_HOSTS, ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("node", TWO_HOSTS, ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("node", ROUND_ROBIN, ((0, 2, 4), (1, 3, 5))),
        ("cross-node", TWO_HOSTS, ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("cross-node", ROUND_ROBIN, ((0, 1), (2, 3), (4, 5))),
        ("pairs", ROUND_ROBIN, ((0, 1), (2, 3), (4, 5))),
        ("ring", ROUND_ROBIN, ((0, 5), (1, 2), (3, 4))),
        ("halves", ROUND_ROBIN, ((0, 1, 2), (3, 4, 5))),
        ("strided", ROUND_ROBIN, ((0, 2, 4), (1, 3, 5))),
        ("strided:3", ROUND_ROBIN, ((0, 3), (1, 4), (2, 5))),
        ("mesh:dp=2,tp=4@tp", TWO_HOSTS, ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh:dp=2,tp=4@dp", TWO_HOSTS, ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh:a=2,b=2,c=2@b", TWO_HOSTS, ((0, 2), (1, 3), (4, 6), (5, 7))),
    ],
)
def test_groups(text: str, place: Placement, expected: Groups) -> None:
    assert groups(text, place) == expected


@pytest.mark.parametrize("text", [*(name for name, entry in TOPOLOGIES.items() if entry.alone), "strided:4"])
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_groups_have_one_size_and_share_no_rank(text: str, hosts: int) -> None:
    found = groups(text, Placement.in_blocks(16, 16 // hosts))
    if isinstance(found, str):
        assert (text, hosts) == ("cross-node", 1)
        return
    assert sorted(rank for group in found for rank in group) == list(range(16))
    assert len({len(group) for group in found}) == 1


def test_pairs_and_ring_are_together_every_link_of_a_ring() -> None:
    place = Placement.in_blocks(8, 8)
    links = {frozenset(group) for name in ("pairs", "ring") for group in groups(name, place)}
    assert links == {frozenset((rank, (rank + 1) % 8)) for rank in range(8)}


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("node", UNEVEN, "hosts have 1 to 3 ranks"),
        ("cross-node", UNEVEN, "fewer than 3 ranks"),
        ("cross-node", Placement((0, 0)), "all ranks are on one host"),
        ("pairs", Placement((0, 0, 0)), "odd number"),
        ("ring", Placement((0, 0)), "at least 4 ranks, there are 2"),
        ("halves", Placement((0,)), "odd number"),
        ("strided:3", Placement((0, 0)), "do not divide into 3 groups"),
        ("mesh:dp=2,tp=4@dp", Placement((0, 0)), "2x4 is 8 ranks, there are 2"),
    ],
)
def test_what_cannot_be_cut_says_why(text: str, place: Placement, reason: str) -> None:
    found = groups(text, place)
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wrld", "did you mean 'world'"),
        ("pairs:2", "takes no parameters"),
        ("mesh", "takes parameters: write it as mesh:NAME=SIZE"),
        ("mesh:", "write it like mesh:dp=2,tp=4"),
        ("mesh:dp", "write it like mesh:dp=2,tp=4"),
        ("mesh:dp=0", "write it like mesh:dp=2,tp=4"),
        ("mesh:dp=2,dp=2", "two dimensions dp"),
        ("mesh:dp=2,tp=2@pp", "unknown dimension of the mesh 'pp'"),
        ("mesh:d p=2", "write it like mesh:dp=2,tp=4"),
        ("strided:1", "a number of groups from 2"),
        ("strided:x", "a number of groups from 2"),
        ("strided:99999999999999999999", "a number of groups from 2"),
        ("file:", "names no file"),
        ("file:/nowhere/groups.txt", "cannot be read"),
        ("file:/", "is a folder"),
        ("file:/dev/zero", "is a device or a pipe"),
        ("file:groups\x00.txt", "no file can be called that"),
        ("mesh:" + ",".join(f"dimension{number}=2" for number in range(10)), "more than 100 characters"),
        ("hierarchical", "--arms 'gloo; gloo hierarchical'"),
        ("world,world", "names world twice"),
        ("strided,strided:2", "names strided:2 twice"),
        ("world,,pairs", "empty entry"),
    ],
)
def test_bad_input_is_one_line(text: str, words: str) -> None:
    with pytest.raises(RequestError) as raised:
        values.topologies(text, "--topologies")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_commas_of_a_mesh_belong_to_it() -> None:
    assert names("world,mesh:dp=2,tp=4,pairs") == ["world", "mesh:dp=2,tp=4@dp", "mesh:dp=2,tp=4@tp", "pairs"]
    assert names("mesh:dp=2,tp=4@tp,world") == ["mesh:dp=2,tp=4@tp", "world"]
    assert names("all") == ["world", "node", "cross-node", "pairs", "ring", "halves", "strided:2"]


class TestFile:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("0-1\n2-3\n", ((0, 1), (2, 3))),
            ("# rails\n\n0,2 # first\n1 3", ((0, 2), (1, 3))),
            ("3,1\n", ((1, 3),)),
        ],
    )
    def test_groups(self, tmp_path: Path, text: str, expected: Groups) -> None:
        path = tmp_path / "my rails.txt"
        path.write_text(text)
        (cut,) = parse_topology(f"file:{path}")
        assert cut.name == "file:my_rails"
        assert cut.groups(Placement.in_blocks(4, 4)) == expected

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "names no groups"),
            ("0,x", "line 1: 'x' is no rank"),
            ("0-1\n3-2", "line 2: '3-2' is no range"),
            ("0-1\n1-2", "names rank 1 2 times"),
            ("0-1\n2", "groups of 1 to 2 ranks"),
            ("-1", "is no rank"),
            ("0-99999999999", "is no rank"),
            # Of these lines the ranks alone would be gigabytes.
            ("0-1048575\n" * 300, "line 2: more than 1,048,576 ranks up to here"),
            (",".join(["0-1048575"] * 300), "line 1: more than 1,048,576 ranks up to here"),
            ("x" * 1_000_000, f"line 1: '{'x' * 40}...' is no rank"),
            ("\x00", "is no rank"),
        ],
    )
    def test_bad_files_are_one_line(self, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "groups"
        path.write_text(text)
        with pytest.raises(RequestError, match="groups") as raised:
            parse_topology(f"file:{path}")
        assert words in str(raised.value)

    def test_a_pipe_that_nobody_writes_to(self, tmp_path: Path) -> None:
        path = tmp_path / "groups"
        os.mkfifo(path)
        with pytest.raises(RequestError, match="is a device or a pipe"):
            parse_topology(f"file:{path}")

    def test_a_name_that_no_line_of_a_run_can_hold(self, tmp_path: Path) -> None:
        path = tmp_path / f"{'x' * 96}.txt"
        path.write_text("0-1")
        with pytest.raises(RequestError, match="more than 95 characters") as raised:
            parse_topology(f"file:{path}")
        assert len(str(raised.value)) < 200
        path.rename(tmp_path / f"{'x' * 95}.txt")
        (cut,) = parse_topology(f"file:{tmp_path / ('x' * 95)}.txt")
        assert len(cut.name) == 100

    def test_a_mark_of_byte_order(self, tmp_path: Path) -> None:
        path = tmp_path / "groups"
        path.write_bytes(b"\xef\xbb\xbf0-1\r\n2-3\r\n")
        (cut,) = parse_topology(f"file:{path}")
        assert cut.groups(Placement.in_blocks(4, 4)) == ((0, 1), (2, 3))

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "groups"
        path.write_bytes(b"\xff\xfe0\x00")
        with pytest.raises(RequestError, match="is no text"):
            parse_topology(f"file:{path}")

    def test_a_rank_that_is_not_there(self, tmp_path: Path) -> None:
        path = tmp_path / "groups"
        path.write_text("0,9")
        assert groups(f"file:{path}", Placement.in_blocks(4, 4)) == "groups: names rank 9, there are 4 ranks"


class TestPlan:
    def test_a_case_has_its_groups_size(self) -> None:
        plan = plan_of("world,pairs")
        assert [(case.topology, case.nranks) for case in plan.planned] == [("world", 4), ("pairs", 2)]
        assert plan.groups == {"pairs": ((0, 1), (2, 3))}

    def test_what_cannot_be_cut_is_skipped_with_its_reason(self) -> None:
        plan = plan_of("world,cross-node")
        (skipped,) = [entry for entry in plan.cases if entry.status == "skipped"]
        assert skipped.reason == "cross-node: all ranks are on one host"
        assert plan.groups == {}

    def test_nothing_left_is_refused(self) -> None:
        with pytest.raises(RequestError, match="3 ranks are an odd number"):
            plan_of("pairs", nranks=3, local_ranks=3)

    def test_hosts_are_taken_as_they_are(self) -> None:
        assert plan_of("node", nranks=6, local_ranks=3, place=ROUND_ROBIN).groups["node"] == (
            (0, 2, 4),
            (1, 3, 5),
        )
        assert plan_of("node", nranks=6, local_ranks=3).groups["node"] == ((0, 1, 2), (3, 4, 5))

    def test_a_root_that_a_group_does_not_have(self) -> None:
        selection = Selection(
            sizes=(1024,),
            ops=("broadcast",),
            roots=(0, 3),
            modes=("isolated",),
            topologies=values.topologies("pairs", ""),
        )
        arms = (Arm("gloo", "gloo"),)
        plan = build_plan(selection, arms, nranks=4, local_ranks=4, device="cpu")
        assert [entry.status for entry in plan.cases] == ["planned", "skipped"]
        assert plan.cases[1].reason == "pairs has groups of 2 ranks, and none has the root's number"

    def test_it_goes_to_json_and_back(self) -> None:
        plan = plan_of("pairs,mesh:dp=2,tp=2", arms="gloo; gloo hierarchical")
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan

    def test_tiers_of_hierarchical_arms(self) -> None:
        plan = plan_of("world", nranks=4, place=UNEVEN, arms="gloo; gloo hierarchical")
        assert plan.groups == {TIER_OF_HOST: ((0, 1, 2), (3,)), TIER_OF_LEADERS: ((0, 3),)}
        assert [arm.id for arm in plan.arms] == ["gloo", "gloo-hierarchical"]

    def test_sixteen_thousand_ranks_are_cut_in_moments(self) -> None:
        plan = plan_of("all,mesh:dp=64,tp=8,pp=32", nranks=16_384, local_ranks=8)
        assert math.prod(size for _, size in plan.meshes["mesh:dp=64,tp=8,pp=32@tp"]) == 16_384
        assert len(plan.groups["node"]) == 2048


class TestPart:
    def test_of_a_rank_in_a_group(self) -> None:
        part = part_of(plan_of("strided"), "strided:2", 3)
        assert (part.number, part.ranks, part.rank) == (1, (1, 3), 1)

    def test_of_a_rank_in_none(self, tmp_path: Path) -> None:
        path = tmp_path / "some"
        path.write_text("0,2")
        part = part_of(plan_of(f"file:{path}"), "file:some", 3)
        assert (part.number, part.ranks, part.rank) == (None, (3,), 0)

    def test_of_every_topology_in_order(self) -> None:
        assert list(parts_of(plan_of("halves,world"), 0)) == ["halves", "world"]
