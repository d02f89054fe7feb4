"""Names in runs and texts become node-1, user-1 ...: which do, which do not, and always the same."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from report_fixtures import SMALL, make_calibration, make_launches, make_run, skip
from report_reading import page_of

from ncclbench.compare.launches import compare_sides
from ncclbench.compare.sides import Side
from ncclbench.errors import MeasurementError
from ncclbench.report.aliases import Aliases
from ncclbench.report.build import render_comparison, write_report
from ncclbench.report.contents import page_texts
from ncclbench.report.redact import Redactor
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run


def aliases(*hosts: str, users: tuple[str, ...] = ()) -> Aliases:
    known = Aliases()
    for host in hosts:
        known.know("host", host)
    for user in users:
        known.know("user", user)
    for host in hosts:
        known.host(host)
    return known


def run_on(
    *hosts: str, folder: str = "results/demo", label: str | None = "demo", arms: tuple[str, ...] = ("gloo",)
) -> Run:
    """A run with a rank on each of the hosts."""
    run = make_run(Path(folder), sizes=SMALL, hosts=len(hosts), nranks=len(hosts), label=label, arms=arms)
    for entry, host in zip(run.meta["environment"]["hosts"], hosts, strict=True):
        entry["name"] = host
    return run


def redacted(run: Run) -> Run:
    (shown,) = Redactor([run]).runs
    return shown


# --- texts


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("rank 3 on gpu1 died", "rank 3 on node-1 died"),
        ("gpu10 and gpu1", "node-2 and node-1"),
        ("GPU1: timeout", "node-1: timeout"),
        ("gpu1-after-reboot", "node-1-after-reboot"),
        ("run_gpu1_hopper", "run_node-1_hopper"),
        ("gpu1.cluster.example.com:29400", "node-1:29400"),
        ("gpu[1,10]", "node-3"),
        # Unlike names that hold it, numbers and words.
        ("mygpu1 gpu1x gpu 1", "mygpu1 gpu1x gpu 1"),
    ],
)
def test_hosts_are_found_by_boundaries_in_any_case(text: str, becomes: str) -> None:
    assert aliases("gpu1", "gpu10").text(text) == becomes


def test_host_of_the_same_cluster_is_found_though_the_run_did_not_use_it() -> None:
    known = aliases("dgx-b200-01", "dgx-b200-02")
    assert known.text("lost dgx-b200-17, not b200 and not dgx-b200-x") == (
        "lost node-3, not b200 and not dgx-b200-x"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("10.1.2.3", "address"),
        ("fe80::1ff:fe23:4567:890a", "address"),
        ("fe80:0000:0000:0000:506b:4b03:00c1:2234", "address"),
        ("506b:4b03:00c1:2234", "address"),
        ("0x506b4b0300c12234", "address"),
        ("02:42:ac:11:00:02", "address"),
        ("enx0242ac110002", "address"),
        ("tcp://10.1.2.3:29500", "address"),
        ("https://wiki.example.com/cluster?id=7", "address"),
        ("jane.roe@example.com", "address"),
        ("/home/jroe/runs/a.log", "path"),
        ("~/runs", "path"),
        ("~jroe/runs", "path"),
        ("./local/run.json", "path"),
        ("../up", "path"),
        ("$HOME/x.so", "path"),
        (r"/data/my\ runs/x", "path"),
        (r"C:\Users\jroe\nccl.txt", "path"),
        (r"\\server\share\x", "path"),
        ("GPU-3b1f2c4d-0a1b-2c3d-4e5f-60718293a4b5", "id"),
        ("3b1f2c4d-0a1b-2c3d-4e5f-60718293a4b5", "id"),
        ("i-0abcdef1234567890", "id"),
        ("ip-10-0-131-17", "id"),
        ("ocid1.instance.oc1.iad.abcdef", "id"),
        ("arn:aws:iam::123456789012:role/bench", "id"),
        ("3f2a9c81d0e4", "id"),
        ("c0ffee" * 10 + "1234", "id"),
        ("login1.cluster.example.com", "site"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "see {}, please", "({})", "a={} b", "'{}'", "[{}]", "to {}."])
def test_what_looks_like_it_is_found_wherever_it_stands(text: str, kind: str, around: str) -> None:
    assert Aliases().text(around.format(text)) == around.format(f"{kind}-1")


@pytest.mark.parametrize(
    "text",
    [
        "busbw 48.0 GB/s, 3.5 GB / s, 1/2, N/A, and/or",
        "all_reduce/float32/sum/65536/world/isolated/sync/in-place/n2",
        "torch 2.15.0+cu132, NCCL 2.30.7, driver 590.44.01, vbios 96.00.74.00.01",
        "12:30:45 2026-11-29T15:50:00Z",
        "PCI 00000000:3B:00.0 and 0000:3b:00.0",
        "mlx5_0:1,mlx5_1:1 =eth0,ib0",
        "c10d::ProcessGroup at::Tensor std::vector",
        "127.0.0.1 0.0.0.0 255.255.255.0 ::1 localhost",
        "all_reduce@1G>=450GB/s",
        "</script><img src=x onerror=alert(2)>",
        "env:// /dev/shm /dev/nvidia0",
        "float8_e4m3fn deadbeefcafe 202611291550 64-Core 0-3,8",
        "git 3bf863cc0a1b2c3d4e5f60718293a4b5c6d7e8f9",
        "one job, 2000 epochs",
        "it ended. Then it began again",
    ],
)
def test_what_is_no_name_stays(text: str) -> None:
    assert Aliases().text(text) == text


def test_the_same_gets_the_same_and_another_another() -> None:
    known = Aliases()
    assert known.text("10.0.0.1 10.0.0.2 10.0.0.1 FE80::A fe80::a") == (
        "address-1 address-2 address-1 address-3 address-3"
    )
    assert known.text("/a/b /a/B /a/b/") == "path-1 path-2 path-1"


@pytest.mark.parametrize("name", ["gloo", "a", "sum", "localhost", "h100", "time", "all_reduce", "rank"])
def test_host_called_like_a_word_mangles_no_text(name: str) -> None:
    run = run_on(name, "gpu07")
    run.meta["message"] = f"the {name} of gpu07"
    shown = redacted(run)
    hosts = shown.meta["environment"]["hosts"]
    assert [host["name"] for host in hosts] == ["node-1", "node-2"]
    assert shown.meta["message"] == f"the {name} of node-2"
    assert [row["op"] for row in run_rows(shown)] == [row["op"] for row in run_rows(run)]
    assert set(shown.units) == set(run.units)


def test_ambiguous_names_are_told_of_without_naming_them() -> None:
    redactor = Redactor([run_on("unclear", "gpu07")])
    assert redactor.aliases.ambiguous == ["unclear"]
    assert any("1 name is an ordinary word too" in line for line in redactor.notice)
    assert "unclear" not in " ".join(redactor.notice)


def test_hosts_called_as_the_new_names_are_do_not_meet_them() -> None:
    shown = redacted(run_on("node-2", "node-1", label="node-1 alone"))
    assert [host["name"] for host in shown.meta["environment"]["hosts"]] == ["nodes-1", "nodes-2"]
    assert shown.meta["label"] == "nodes-2 alone"


def test_short_and_long_form_are_one_host_and_like_hosts_of_two_sites_are_two() -> None:
    known = aliases("gpu01.a.example.com", "gpu02.a.example.com", "gpu01.b.example.com")
    assert known.text("gpu01.a.example.com gpu02 gpu01.b.example.com") == "node-1 node-2 node-3"
    assert known.text("in a.example.com") == "in site-1"


def test_thousands_of_hosts_take_no_time() -> None:
    known = aliases(*(f"cluster-a-{index:05d}" for index in range(10_000)))
    assert known.text("x " * 50_000 + "cluster-a-09999") == "x " * 50_000 + "node-10000"


@pytest.mark.parametrize("char", ["a", "1", "-", ".", "/", ":", "@", "a-", "a.", "a:", "/a", "0x", "\\"])
def test_no_text_takes_quadratic_time(char: str) -> None:
    text = char * 60_000
    assert len(aliases("gpu1").text(text)) > 0


# --- runs


def owned_run() -> Run:
    """A run that tells where it was made in every way that a run can."""
    run = run_on("gpu01.hpc.example.com", "gpu02.hpc.example.com", label="jroe on gpu01")
    run.folder = Path("/home/jroe/results/20261129-155000-gpu01")
    environment = run.meta["environment"]
    environment["common"] = {
        "variables": {
            "MASTER_ADDR": "gpu01",
            "SLURM_JOB_ID": "482913",
            "SLURM_JOB_PARTITION": "hpc-h100",
            "NCCL_SOCKET_IFNAME": "=eth0,ib0",
            "LD_LIBRARY_PATH": "/home/jroe/lib:/usr/lib",
            "NCCL_DEBUG": "WARN",
        }
    }
    environment["hosts"][0] |= {"boot_id": "3f2a9c81", "kernel": "6.8.0-40-generic"}
    environment["hosts"][1]["topology"] = {
        "gpus": [{"serial": 1650123456789, "uuid": "GPU-1", "numa_node": 1}],
        "nics": [{"name": "mlx5_0", "port_guid": "506b:4b03:00c1:2234", "mac": "x1"}],
        "job": {"scheduler": "slurm", "id": "482913", "user": "jroe"},
        "container": {"id": "c0ffee", "image": "CONTAINER_IMAGE=registry/team/image:7"},
    }
    environment["differences"] = [
        {"what": "SLURM_JOB_ID", "values": [{"value": "7", "ranks": [0]}, {"value": "8", "ranks": [1]}]}
    ]
    run.meta["command"] = [
        "/home/jroe/bin/ncclbench",
        "sweep",
        "--label",
        "jroe on gpu01",
        "--out",
        "gpu01-out",
    ]
    run.meta["message"] = "job 482913: gpu02 (10.0.0.2) is lost"
    run.meta["preflight"] = [{"severity": "warning", "ranks": [0], "what": "2 ranks on gpu01", "mend": None}]
    run.meta["calibration"] = make_calibration(("all_reduce", 4096, "isolated", 0.02)) | {
        "hosts": ["gpu01.hpc.example.com"],
        "advice": ["move gpu02 away"],
    }
    run.problems = ["/home/jroe/results/20261129-155000-gpu01/samples.jsonl: the last line is torn"]
    skip(run, 0, "gpu01 said no")
    return run


def test_every_part_of_a_run_is_without_names() -> None:
    shown = redacted(owned_run())
    meta, environment = shown.meta, shown.meta["environment"]
    assert (shown.folder, meta["label"]) == (Path("run-1"), "user-1 on node-1")
    assert meta["command"] == ["ncclbench", "sweep", "--label", "user-1 on node-1", "--out", "path-1"]
    assert re.fullmatch(r"job job-1: node-2 \(address-\d\) is lost", meta["message"])
    assert meta["preflight"][0]["what"] == "2 ranks on node-1"
    assert meta["calibration"]["hosts"] == ["node-1"]
    assert meta["calibration"]["advice"] == ["move node-2 away"]
    assert shown.problems == ["run-1/samples.jsonl: the last line is torn"]
    assert shown.plan.cases[0].reason == "node-1 said no"
    assert environment["common"]["variables"] == {
        "MASTER_ADDR": "node-1",
        "SLURM_JOB_ID": "job-1",
        "SLURM_JOB_PARTITION": "site-1",
        "NCCL_SOCKET_IFNAME": "=eth0,ib0",
        "LD_LIBRARY_PATH": "path-3:path-4",
        "NCCL_DEBUG": "WARN",
    }
    assert environment["hosts"][0]["kernel"] == "6.8.0-40-generic"
    assert environment["hosts"][0]["boot_id"] == "id-1"
    topology = environment["hosts"][1]["topology"]
    assert topology["gpus"] == [{"serial": "id-2", "uuid": "id-3", "numa_node": 1}]
    assert topology["nics"][0]["name"] == "mlx5_0"
    assert {topology["nics"][0][key].partition("-")[0] for key in ("port_guid", "mac")} == {"address"}
    assert topology["job"] == {"scheduler": "slurm", "id": "job-1", "user": "user-1"}
    assert [word.partition("-")[0] for word in topology["container"].values()] == ["id", "path"]
    values = [entry["value"] for entry in environment["differences"][0]["values"]]
    assert values == ["job-2", "job-3"]


def test_samples_are_shared_and_the_original_is_untouched() -> None:
    run = owned_run()
    before = str(run.meta), run.folder
    shown = redacted(run)
    assert (str(run.meta), run.folder) == before
    for key, units in run.units.items():
        assert [unit.total_us is other.total_us for unit, other in zip(units, shown.units[key], strict=True)]
    assert run_rows(shown)[5]["median_us"] == run_rows(run)[5]["median_us"]


def test_runs_of_one_page_share_their_names() -> None:
    one, other = run_on("gpu01", "gpu02", label="a"), run_on("gpu02", "gpu03", folder="x/other", label="b")
    other.meta["message"] = "as in results/demo on gpu01"
    shown = Redactor([one, other]).runs
    names = [[host["name"] for host in run.meta["environment"]["hosts"]] for run in shown]
    assert names == [["node-1", "node-2"], ["node-2", "node-3"]]
    assert [run.folder.name for run in shown] == ["run-1", "run-2"]
    assert shown[1].meta["message"] == "as in run-1 on node-1"


def test_arms_that_differ_in_a_name_alone_stay_apart() -> None:
    run = run_on("gpu01", "gpu02", arms=("nccl2-GPU01", "nccl2-gpu01", "nccl2-gpu02"))
    shown = redacted(run)
    assert [arm.id for arm in shown.plan.arms] == ["nccl2-node-1", "nccl2-node-1#2", "nccl2-node-2"]
    assert [row["arm"] for row in run_rows(shown)[:3]] == [arm.id for arm in shown.plan.arms]
    assert all(row["status"] == "ok" for row in run_rows(shown))


def test_job_number_that_is_a_size_too_loses_no_case() -> None:
    run = run_on("gpu01", "gpu02")
    run.meta["environment"]["common"] = {"variables": {"SLURM_JOB_ID": str(SMALL[2])}}
    run.meta["message"] = f"job {SMALL[2]} is done"
    shown = redacted(run)
    assert shown.meta["message"] == "job job-1 is done"
    assert [row["nbytes"] for row in run_rows(shown)] == [row["nbytes"] for row in run_rows(run)]
    assert all(row["status"] == "ok" for row in run_rows(shown))


def test_sides_of_a_comparison_are_called_by_the_new_names() -> None:
    base, new = make_launches("monday", 4, sizes=SMALL), make_launches("gpu07", 4, seed=3, sizes=SMALL)
    for run in (*base, *new):
        run.meta["environment"]["hosts"][0]["name"] = "gpu07" if any(run is each for each in new) else "gpu03"
    base[0].meta["label"] = None
    redactor = Redactor([*base, *new])
    one, other = (
        redactor.side(Side(base, None, "monday-0 .. monday")),
        redactor.side(Side(new, None, "gpu07")),
    )
    assert (one.label, other.label) == ("run-1 .. monday", "node-2")
    page = render_comparison(compare_sides(one, other), notice=redactor.notice)
    redactor.check(page_texts(page))
    assert "gpu07" not in page


# --- the check


def test_what_comes_from_elsewhere_is_found_before_it_is_written(tmp_path: Path) -> None:
    run = owned_run()
    redactor = Redactor([run])
    path = tmp_path / "page.html"
    path.write_text("old")
    for forgotten in ("label", "message"):
        leaking = dataclasses.replace(
            redactor.runs[0], meta={**redactor.runs[0].meta, forgotten: run.meta[forgotten]}
        )
        with pytest.raises(MeasurementError, match="would still tell the name of a") as told:
            write_report([leaking], path, redactor=redactor)
        assert "gpu0" not in str(told.value)
        assert "jroe" not in str(told.value)
        assert path.read_text() == "old"
    write_report(redactor.runs, path, redactor=redactor)
    assert "user-1 on node-1" in path.read_text("utf-8")


def test_page_says_what_was_done_and_an_ordinary_one_nothing() -> None:
    redactor = Redactor([owned_run()])
    page = "".join(redactor.notice)
    assert page.startswith("Redacted: 2 hosts, 1 user, ")
    assert "node-1" in page
    assert "redacted" not in page_of(owned_run()).ids()


@pytest.mark.parametrize(
    "text",
    [
        "atlas-dgx-17: Test NCCL failure common.cu:1005 'unhandled system error'",
        "12:00:01 atlas-dgx-17: Test CUDA failure all_reduce.cu:44",
        "line 40: ` .. atlas-dgx-17 pid 123: Test failure common.cu:891`",
        "srun: error: atlas-dgx-17: task 3: Killed",
        "srun: error: atlas-dgx-[17-18]: tasks 0-15: Aborted",
        "slurmstepd: error: *** STEP 44.0 ON atlas-dgx-17 CANCELLED AT 2026-02-02T00:00:00 ***",
        "[atlas-dgx-17:12345] *** Process received signal ***",
        "mpirun noticed that process rank 3 with PID 12345 on node atlas-dgx-17 exited on signal 9",
        "#  Rank  0 Group  0 Pid 1000 on atlas-dgx-17 device 0 [0000:00:00] NVIDIA H100",
        "atlas-dgx-17:1000:1020 [0] NCCL WARN Call to connect timed out",
    ],
)
def test_hosts_are_learnt_from_what_programs_print_of_failures(text: str) -> None:
    """Of a log that names no devices nothing else tells its hosts; others of the cluster are found then."""
    run = run_on("localhost")
    run.problems = [text, "and atlas-dgx-18 was slow"]
    shown = redacted(run).problems
    assert not [line for line in shown if "atlas" in line]
    assert re.search(r"\bnode-\d", shown[0])


@pytest.mark.parametrize(
    "text",
    [
        "tensor on [cuda:100] of [0000:07:00]",
        "srun: error: Unable to create step",
        "srun: error: slurm_receive_msg: Socket timed out",
        "all_reduce: Test failure",
    ],
)
def test_what_only_looks_like_a_failing_host_is_left(text: str) -> None:
    run = run_on("localhost")
    run.problems = [text]
    assert redacted(run).problems == [text]
