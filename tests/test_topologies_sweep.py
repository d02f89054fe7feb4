"""Topologies in real sweeps: the group with wrong data and the group with a slow rank are named, no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeping import sweep

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
