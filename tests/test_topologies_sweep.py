"""Topologies in real runs: the group with wrong data and the group with a slow rank are named, no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sweeping import run, sweep

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("--nproc-per-node", "4", "--sizes", "1K", "--modes", "isolated")

# Put into every process by Python itself, before the workers' own modules take all_reduce.
_SITE = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'ncclbench.worker.groups':
            sys.meta_path.remove(self)
            import importlib.util, time
            import torch.distributed as dist
            true = dist.all_reduce
            def changed(tensor, *rest, **named):
                group = named.get('group')
                ranks = [] if group is None else dist.get_process_group_ranks(group)
                {before}
                work = true(tensor, *rest, **named)
                {after}
                return work
            dist.all_reduce = changed
            return importlib.util.find_spec(name)
sys.meta_path.insert(0, Finder())
"""


def changed_gloo(folder: Path, before: str = "pass", after: str = "pass") -> dict[str, str]:
    """The environment in which all_reduce does something more."""
    (folder / "sitecustomize.py").write_text(_SITE.format(before=before, after=after))
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.mark.full
def test_wrong_data_in_one_group_are_found_there_and_nowhere_else(tmp_path: Path) -> None:
    wrong = "if ranks == [2, 3] and tensor.numel() > 1: work and work.wait(); tensor[0] += 1"
    env = changed_gloo(tmp_path, after=wrong)
    options = ("--topologies", "pairs,halves,strided:2,world", *QUICK, "-n", "6", "--exit-zero")
    done = sweep(*options, "--out", tmp_path / "run", "--json", env=env)
    assert done.code == 1, done.err
    rows = {row["topology"]: row for row in done.document["rows"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "pairs": "wrong",
        "halves": "wrong",
        "strided:2": "ok",
        "world": "ok",
    }
    for name in ("pairs", "halves"):
        wrongs = {tuple(group["ranks"]): group["wrong"] for group in rows[name]["groups"]}
        assert wrongs == {(0, 1): 0, (2, 3): rows[name]["wrong"]}
        assert rows[name]["reason"].endswith(f"wrong elements in the group of ranks 2-3 of {name}")
        assert f"wrong elements in the group of ranks 2-3 of {name}" in done.err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "all_reduce 1K on gloo in the group of ranks 2-3 of pairs" in page


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 3])
def test_the_group_of_a_slow_rank_is_named_and_no_other(rank: int, tmp_path: Path) -> None:
    env = changed_gloo(tmp_path, before=f"dist.get_rank() == {rank} and time.sleep(0.02)")
    options = ("--topologies", "pairs,strided:2", *QUICK, "-n", "64", "--epochs", "8", "--timeout", "60s")
    done = sweep(*options, "--out", tmp_path / "run", "--json", env=env)
    assert done.code == 0, done.err
    for row in done.document["rows"]:
        slow = [group["ranks"] for group in row["groups"] if group["slow"]]
        assert [rank in ranks for ranks in slow] == [True], row["topology"]
        assert row["slow_groups"] == 1


@pytest.mark.full
def test_groups_at_once_names_the_group_with_wrong_data(tmp_path: Path) -> None:
    wrong = "if ranks == [2, 3] and tensor.numel() > 1: work and work.wait(); tensor[0] += 1"
    env = changed_gloo(tmp_path, after=wrong)
    options = (
        "--parts",
        "together",
        "--topology",
        "pairs",
        "--nproc-per-node",
        "4",
        "--sizes",
        "1K",
        "-n",
        "3",
    )
    words = (sys.executable, "-m", "ncclbench", "groups")
    done = run(*words, *options, "-n", "3", "--exit-zero", "--out", tmp_path / "run", "--json", env=env)
    assert done.code == 1, done.err
    assert {tuple(row["ranks"]): row["wrong"] for row in done.document["at_once"]} == {(0, 1): 0, (2, 3): 12}
    assert done.document["message"].startswith(
        "WRONG DATA in 12 elements: group of ranks 2-3 in pairs on gloo, 1K; "
    )
    assert "group of ranks 2-3 in pairs" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.full
def test_sizes_that_are_no_whole_elements_are_measured_in_every_cut(tmp_path: Path) -> None:
    """13 bytes are 8 in pairs, 40 are 32 in the world and so in pairs too; what is left out is said."""
    options = ("--parts", "together", "--topology", "pairs,world,cross-node", "--op", "reduce_scatter")
    words = (sys.executable, "-m", "ncclbench", "groups", "--nproc-per-node", "4", "-n", "3", "--epochs", "1")
    done = run(*words, *options, "--sizes", "13,40", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    measured = {(row["topology"], row["nbytes"], row["at_once"]) for row in done.document["at_once"]}
    assert measured == {("pairs", 8, 2), ("pairs", 32, 3), ("world", 32, 3)}
    assert [(line["part"], line["reason"]) for line in done.document["left_out"]] == [
        ("together", "world: below one element per rank"),
        ("together", "cross-node: all ranks are on one host"),
    ]
