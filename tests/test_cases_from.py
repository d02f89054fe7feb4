"""``--cases-from``: a real job's calls measured again, and one line for whatever is no such job."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cases_fixtures import CALLS, NRANKS, make_job_dumps
from flight_reading import as_json, document, entry
from report_fixtures import HOSTILE
from sweeping import by_status, sweep

from ncclbench.cli.app import run
from ncclbench.store.reader import load_run

BRIEF = ("--modes", "isolated", "-n", "2", "--epochs", "2", "-c", "1")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    make_job_dumps(folder)
    return folder


def planned(capsys: pytest.CaptureFixture[str], *words: str | Path, nranks: int = NRANKS) -> dict[str, Any]:
    """The document of ``plan`` with these options."""
    fixed = ("plan", "--backends", "gloo", "--modes", "isolated", "--json", "--nproc-per-node", str(nranks))
    assert run([*fixed, *map(str, words)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path, nranks: int = NRANKS) -> str:
    """The one line with which ``plan`` refuses."""
    assert run(["plan", "--backends", "gloo", "--nproc-per-node", str(nranks), *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    return err


def keys(rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(row["topology"], row["op"], row["nbytes"]) for row in rows]


class TestRealJob:
    def test_a_sweep_measures_just_its_calls_and_says_where_they_came_from(
        self, dumps: Path, tmp_path: Path
    ) -> None:
        files = sorted(dumps.iterdir())
        outcome = sweep(
            "--cases-from",
            *files,
            *BRIEF,
            "--nproc-per-node",
            str(NRANKS),
            "--out",
            tmp_path / "run",
            "--json",
        )
        assert outcome.code == 0, outcome.err
        rows = outcome.document["rows"]
        assert by_status(rows) == {"ok": len(CALLS)}
        assert {(row["topology"], row["op"], row["dtype"], row["nbytes"]) for row in rows} == {
            call[:4] for call in CALLS
        }
        told = outcome.document["cases_from"]
        assert {
            tuple(call[key] for key in ("topology", "op", "dtype", "nbytes", "calls"))
            for call in told["calls"]
        } == CALLS
        total = sum(call[3] * call[4] for call in CALLS)
        shares = {call["op"]: call["share"] for call in told["calls"] if call["topology"] == "world"}
        assert shares["all_reduce"] == pytest.approx(3 * 16384 / total)
        assert sum(call["share"] for call in told["calls"]) == pytest.approx(1)
        assert told["files"][2] == {
            "file": "rank_2",
            "sha256": hashlib.sha256(files[2].read_bytes()).hexdigest(),
        }
        assert (told["nfiles"], told["nranks"], told["left"]) == (4, 4, [])
        assert "cases: 7 different calls, 14 in all, from 4 dumps of a job of 4 ranks" in outcome.err
        kept = load_run(tmp_path / "run")
        assert kept.meta["cases_from"] == told
        assert kept.plan.groups == {"dump:tp": ((0, 1), (2, 3))}
        page = (tmp_path / "run" / "report.html").read_text()
        assert "4 dumps of a job of 4 ranks: rank_0, rank_1, rank_2 and rank_3 (sha256 " in page
        assert "Calls of the job" in page
        assert str(dumps) not in json.dumps(told)

    def test_most_bytes_come_first(self, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = planned(capsys, "--cases-from", dumps)["rows"]
        assert keys(rows)[:3] == [
            ("world", "all_reduce", 16384),
            ("dump:tp", "all_reduce", 4096),
            ("world", "all_gather", 3200),
        ]

    def test_options_choose_among_its_calls(self, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found = planned(
            capsys, "--cases-from", dumps, "--ops", "all_reduce,all_to_all", "-b", "1K", "-e", "4K"
        )
        assert keys(found["rows"]) == [("dump:tp", "all_reduce", 4096)]
        assert "9 calls that the other options leave out" in found["cases_from"]["left"]
        found = planned(capsys, "--cases-from", dumps, "-d", "bf16", "--topologies", "pairs,world")
        assert keys(found["rows"]) == [("pairs", "broadcast", 18), ("world", "broadcast", 18)]
        found = planned(capsys, "--cases-from", dumps, "--topologies", "dump:tp")
        assert keys(found["rows"]) == [("dump:tp", "all_reduce", 4096)]

    def test_its_groups_on_fewer_ranks(self, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found = planned(capsys, "--cases-from", dumps, nranks=2)
        by_topology = {row["topology"]: row for row in found["rows"]}
        assert by_topology["dump:tp"]["status"] == "planned"
        assert by_topology["dump:default_pg"]["status"] == "skipped"
        assert (
            "its group of ranks 0-3 is of a job of 4 ranks, here are 2"
            in by_topology["dump:default_pg"]["reason"]
        )
        assert "1 of 2 groups of tp, whose ranks are not among the 2 here" in found["cases_from"]["left"]
        everywhere = planned(capsys, "--cases-from", dumps, "--topologies", "world", nranks=2)
        assert {row["status"] for row in everywhere["rows"]} == {"planned"}
        line = refused(capsys, "--cases-from", dumps, "--ops", "barrier", nranks=2)
        assert "nothing to measure" in line
        assert "--topologies world measures its calls on these" in line

    def test_its_groups_on_more_ranks(self, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = planned(capsys, "--cases-from", dumps, nranks=6)["rows"]
        assert {(row["topology"], row["nranks"]) for row in rows} == {("dump:default_pg", 4), ("dump:tp", 2)}

    def test_without_some_dumps_it_says_so(self, dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found = planned(capsys, "--cases-from", dumps / "rank_0", dumps / "rank_2", dumps / "rank_3")
        (line,) = found["cases_from"]["left"]
        assert line.startswith("what rank 1 called, of whom there is no dump: ")

    def test_a_plan_from_it_is_run_as_it_stands_and_its_source_with_it(
        self, dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "plan.json"
        words = (
            "--cases-from",
            dumps,
            "--ops",
            "all_reduce",
            "-e",
            "4K",
            "-n",
            "2",
            "--epochs",
            "1",
            "--out",
            file,
        )
        source = planned(capsys, *words)["cases_from"]
        outcome = sweep("--plan", file, "--out", tmp_path / "run", "--json")
        assert outcome.code == 0, outcome.err
        assert keys(outcome.document["rows"]) == [("dump:tp", "all_reduce", 4096)]
        assert outcome.document["cases_from"] == source
        assert load_run(tmp_path / "run").meta["plan_file"] == "plan.json"


def nccl(folder: Path, nranks: int = 8, **changes: Any) -> Path:
    """Dumps as nccl-legacy writes them: a group of all ranks, and one of each two neighbours."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(nranks)))}}
    config |= {
        str(1 + pair): {"name": str(1 + pair), "desc": "mesh_tp", "ranks": f"[{2 * pair}, {2 * pair + 1}]"}
        for pair in range(nranks // 2)
    }
    folder.mkdir(exist_ok=True)
    for rank in range(nranks):
        mine = str(1 + rank // 2)
        shapes = {
            "input_sizes": [[1 << 20]],
            "output_sizes": [[1 << 20, nranks]],
            "input_dtypes": ["BFloat16"],
        }
        shapes |= {"output_dtypes": ["BFloat16"]}
        entries = [
            entry(0, profiling_name="nccl:_all_gather_base", **shapes),
            entry(1, process_group=[mine, "mesh_tp"], pg_id=int(mine), collective_seq_id=1),
            entry(2, profiling_name=f"nccl:send {rank}->{rank ^ 1}", is_p2p=True, p2p_seq_id=1),
            entry(3, profiling_name="nccl:coalesced", collective_seq_id=2, input_sizes=[], output_sizes=[]),
            entry(4, profiling_name="nccl:split", collective_seq_id=3),
        ]
        entries = [{**one, **changes} for one in entries]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(as_json(document(entries, pg_config=config)))
    return folder


class TestNcclJob:
    def test_sibling_groups_are_one_topology_and_what_is_no_case_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = planned(capsys, "--cases-from", nccl(tmp_path / "dumps"), nranks=8)
        assert keys(found["rows"]) == [("world", "all_gather", 16 << 20), ("dump:mesh_tp", "all_reduce", 48)]
        assert found["rows"][1]["nranks"] == 2
        left = found["cases_from"]["left"]
        assert "8 calls of send and recv: point-to-point: ncclbench p2p measures messages" in left
        assert "1 call of coalesced: a batch as a whole: its parts are recorded by themselves" in left
        assert "1 call of split: no collective that ncclbench measures" in left

    def test_at_most_so_many_calls_are_taken(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        entries = [
            entry(number, input_sizes=[[1 + number]], output_sizes=[[1 + number]]) for number in range(200)
        ]
        (tmp_path / "rank_0").write_bytes(as_json(document(entries, pg_config={})))
        found = planned(capsys, "--cases-from", tmp_path, nranks=1)
        assert [row["nbytes"] for row in found["rows"]] == [4 * (1 + number) for number in range(136, 200)]
        assert found["cases_from"]["left"][0].startswith(
            "136 of 200 different calls, which move 46.3% of the bytes"
        )


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--sizes", "8"), "leave --sizes away; -b and -e choose among them"),
            (("-f", "4"), "leave --step-factor away"),
            (("-d", "float64"), "no call of the dumps is one of those asked for: they have "),
            (("--topologies", "dump:dp"), "unknown group of the dumps 'dump:dp'"),
            (("--topologies", "dump:a b"), "is no dump:GROUP"),
            (("-b", "0"), "-b/--min-bytes '0' is zero"),
            (("-r", "9"), "-r/--root 9 is not in a world of 4 ranks"),
        ],
    )
    def test_what_contradicts_the_dumps(
        self, dumps: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
    ) -> None:
        assert said in refused(capsys, "--cases-from", dumps, *words)

    def test_groups_of_dumps_without_dumps(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "name them with --cases-from" in refused(capsys, "--topologies", "dump:tp")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (None, "there is no file in it"),
            (b"", "is empty"),
            (b"no dump", "is neither JSON nor a pickle"),
            (b"\x80\x04cos\nsystem\n.", "is a pickle that was not taken"),
            (as_json(document([])), "no collective that can be measured is in the dumps"),
            (
                as_json(document([entry(0, profiling_name="nccl:send 0->1", is_p2p=True)])),
                "send and recv: point-to-point: ncclbench p2p measures messages (1); name dumps of a job",
            ),
            (as_json(document([entry(0, input_sizes=[], output_sizes=[])])), "its sizes are not recorded"),
            (
                as_json(document([entry(0, input_dtypes=["Float", "Int"])])),
                "several element types in one call",
            ),
            (
                as_json(document([entry(0, input_sizes=[[1 << 62]])])),
                "more than the 64T that are measured",
            ),
            (as_json(document([entry(0, input_sizes=[[9] * 90_000])])), "more dimensions than there are"),
            (as_json(document([entry(0, input_sizes=[[1 << 40]])])), "nothing to measure"),
        ],
    )
    def test_what_holds_no_calls(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
    ) -> None:
        if content is not None:
            (tmp_path / "rank_0").write_bytes(content)
        assert said in refused(capsys, "--cases-from", tmp_path)

    def test_names_from_a_dump_stay_text(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        hostile = entry(0, process_group=["0", HOSTILE])
        (tmp_path / "rank_0").write_bytes(
            as_json(document([hostile, entry(1, profiling_name=f"nccl:{HOSTILE}")]))
        )
        found = planned(capsys, "--cases-from", tmp_path, "--out", tmp_path / "plan.json")
        assert all("<" not in row["topology"] and " " not in row["topology"] for row in found["rows"])

    @pytest.mark.parametrize("other", [("--plan", "plan.json"), ("--resume", "run")])
    def test_beside_what_says_the_cases_already(
        self, dumps: Path, capsys: pytest.CaptureFixture[str], other: tuple[str, str]
    ) -> None:
        assert run(["sweep", "--cases-from", str(dumps), *other]) == 2
        assert "leave --cases-from away" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"nfiles": "4"},
        {"calls": [{"op": "all_reduce"}]},
        {"left": "none"},
        {"nranks": 10**400},
        {"files": None},
    ],
)
def test_a_damaged_source_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    (tmp_path / "rank_0").write_bytes(as_json(document([entry(0)], pg_config={})))
    file = tmp_path / "plan.json"
    planned(capsys, "--cases-from", tmp_path / "rank_0", "--out", file, nranks=1)
    fields = json.loads(file.read_text())
    fields["cases_from"] |= change
    file.write_text(json.dumps(fields))
    assert run(["sweep", "--plan", str(file), "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "plan.json is no plan this ncclbench can read" in line
