"""torchrun, mpirun and srun across emulated hosts: one sweep, three ways to start it, the same answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated import Cluster
from emulated_launchers import Launcher
from launchers import LAUNCHERS, LIMIT_S, Apart, apart, hosts_of
from sweeping import run

pytestmark = pytest.mark.timeout(1200)
# Of those that compare times: two cores carry every host, and nothing may run beside them.
live = pytest.mark.live

# Slow, so that the wire decides and not the processors that all hosts share: 1 MB takes 0.6 s.
RATE = 25.0
NPROC = 2
BLOCKS = ["node-00", "node-00", "node-01", "node-01"]
IN_TURN = ["node-00", "node-01", "node-00", "node-01"]

SWEEP = ("sweep", "--ops", "all_reduce,broadcast", "--sizes", "1M", "--modes", "isolated", "-w", "0")
# Between launches the unit is the launch: fewer than four a side have no verdict.
LAUNCHES = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, RATE) as up:
        yield up


def keys(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a document's rows are about."""
    names = ("op", "arm", "implementation", "dtype", "nbytes", "topology", "mode", "nranks", "n", "status")
    return [tuple(row[name] for name in names) for row in document["rows"]]


@pytest.fixture(scope="module")
def sweeps(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Apart]]:
    """Launches of one sweep under each launcher in turn, so that none has the machine's better hour."""
    folder = tmp_path_factory.mktemp("sweeps")
    words = (*SWEEP, "-n", "6", "--epochs", "2", "--json", "--out", "run")
    found: dict[str, list[Apart]] = {launcher: [] for launcher in LAUNCHERS}
    for number in range(LAUNCHES):
        for launcher in LAUNCHERS:
            place = folder / f"{launcher}-{number}"
            found[launcher].append(apart(cluster, place, NPROC, *words, launcher=launcher))
    return found


def folders(sweeps: list[Apart]) -> list[str]:
    return [str(each.run) for each in sweeps]


@live
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rank_0_alone_prints_and_writes_and_all_end_alike(
    launcher: Launcher, sweeps: dict[str, list[Apart]]
) -> None:
    for each in sweeps[launcher]:
        assert each.codes == (0,) * 4, each.outcome.err
        assert each.outs[1:] == ("",) * 3
        assert each.runs == (0,)
        assert each.document["ok"], each.document["message"]


@live
def test_rows_and_hosts_are_the_same_under_all_three(sweeps: dict[str, list[Apart]]) -> None:
    documents = [each.document for launches in sweeps.values() for each in launches]
    assert len({json.dumps(keys(document)) for document in documents}) == 1
    assert len(keys(documents[0])) == 2
    for launcher, launches in sweeps.items():
        for folder in folders(launches):
            assert hosts_of(Path(folder)) == BLOCKS
            meta = json.loads((Path(folder) / "run.json").read_text())
            assert meta["attempts"][0]["launcher"] == launcher


@live
@pytest.mark.parametrize("other", ["mpirun", "srun"])
def test_launches_under_two_launchers_are_the_same(other: str, sweeps: dict[str, list[Apart]]) -> None:
    base, new = folders(sweeps["torchrun"]), folders(sweeps[other])
    done = run(sys.executable, "-m", "ncclbench", "compare", "--base", *base, "--new", *new, "--json")
    rows = done.document["rows"]
    assert [(row["op"], row["verdict"]) for row in rows] == [
        ("all_reduce", "same"),
        ("broadcast", "same"),
    ], [(row["ratio"], row["ci_low"], row["ci_high"]) for row in rows]


@live
def test_one_launch_a_side_has_no_verdict(sweeps: dict[str, list[Apart]]) -> None:
    base, new = folders(sweeps["torchrun"])[0], folders(sweeps["srun"])[0]
    done = run(sys.executable, "-m", "ncclbench", "compare", base, new, "--json")
    assert {row["verdict"] for row in done.document["rows"]} == {"unclear"}
    assert all("these two launches" in str(row["note"]) for row in done.document["rows"]), done.out


@pytest.mark.full
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_bad_request_ends_all_ranks_alike_and_is_said_once(
    launcher: Launcher, cluster: Cluster, tmp_path: Path
) -> None:
    words = ("sweep", "--topologies", "strided:3", "--sizes", "8", "--json")
    ended = apart(cluster, tmp_path / "ranks", NPROC, *words, launcher=launcher)
    assert ended.codes == (2,) * 4
    assert (ended.outs[1:], ended.runs) == (("",) * 3, ())
    assert not ended.document["ok"]


@pytest.mark.full
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_bad_answer_ends_all_ranks_alike(launcher: Launcher, cluster: Cluster, tmp_path: Path) -> None:
    words = (
        "sweep",
        "--sizes",
        "8",
        "-n",
        "4",
        "--epochs",
        "1",
        "--require",
        "all_reduce>=900GB/s",
        "--json",
    )
    ended = apart(cluster, tmp_path / "ranks", NPROC, *words, launcher=launcher)
    assert ended.codes == (1,) * 4
    assert (ended.outs[1:], ended.runs) == (("",) * 3, (0,))


# Which groups each topology cuts, by how the ranks lie on the hosts.
_GROUPS = {
    False: {"node": [[0, 1], [2, 3]], "cross-node": [[0, 2], [1, 3]], "halves": [[0, 1], [2, 3]]},
    True: {"node": [[0, 2], [1, 3]], "cross-node": [[0, 1], [2, 3]], "halves": [[0, 1], [2, 3]]},
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("launcher", "round_robin"),
    [("torchrun", False), ("mpirun", False), ("mpirun", True), ("srun", False), ("srun", True)],
)
def test_topologies_are_cut_where_the_hosts_are(
    launcher: Launcher, round_robin: bool, cluster: Cluster, tmp_path: Path
) -> None:
    topologies = ",".join(_GROUPS[round_robin])
    words = ("sweep", "--sizes", "1M", "--modes", "isolated", "-w", "1", "-n", "4", "--epochs", "2")
    out = tmp_path / "run"
    done = cluster.launch(
        NPROC,
        ("-m", "ncclbench", *words, "--topologies", topologies, "--json", "--out", str(out)),
        LIMIT_S,
        launcher=launcher,
        round_robin=round_robin,
    )
    assert done.code == 0, done.err
    assert hosts_of(out) == (IN_TURN if round_robin else BLOCKS)
    rows = {row["topology"]: row for row in done.document["rows"]}
    found = {name: sorted(group["ranks"] for group in row["groups"]) for name, row in rows.items()}
    assert found == _GROUPS[round_robin]
    across = {"cross-node", *(["halves"] if round_robin else [])}
    times_us: dict[bool, list[float]] = {True: [], False: []}
    for name, row in rows.items():
        times_us[name in across].append(row["p25_us"])
    assert min(times_us[True]) > 1.5 * max(times_us[False]), "the wire is slower than memory"


@live
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_tiers_are_faster_than_one(launcher: Launcher, tmp_path: Path) -> None:
    words = ("sweep", "--sizes", "4M", "--modes", "isolated", "-w", "1", "-n", "16", "--epochs", "8")
    arms = ("--arms", "gloo; gloo hierarchical")
    with Cluster(2, 200) as cluster:
        out = str(tmp_path / "run")
        argv = ("-m", "ncclbench", *words, *arms, "--json", "--out", out)
        done = cluster.launch(NPROC, argv, LIMIT_S, launcher=launcher)
    (row,) = done.document["comparisons"]
    assert row["verdict"] == "faster", row
    assert 0.5 < row["ratio"] < 0.8, "1.5 times as fast in a quiet hour"


@pytest.mark.full
def test_srun_and_mpirun_go_on_where_another_left_off(cluster: Cluster, tmp_path: Path) -> None:
    """What one launcher has begun another can resume: the plan belongs to the ranks, not to it."""
    out = tmp_path / "run"
    first = ("-m", "ncclbench", *SWEEP, "-n", "4", "--epochs", "2", "--json", "--out", str(out))
    assert cluster.launch(NPROC, first, LIMIT_S, launcher="mpirun").code == 0
    again = ("-m", "ncclbench", "sweep", "--resume", str(out), "--json")
    resumed = cluster.launch(NPROC, again, LIMIT_S, launcher="srun")
    assert (resumed.code, len(resumed.document["rows"])) == (0, 2), resumed.err
