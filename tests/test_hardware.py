"""The table of parts and the machine of a run: cited figures, names as drivers give them, nothing guessed."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hardware_fixtures import H100, gpu_run, rdma
from report_fixtures import SMALL, make_run

from ncclbench.hardware import parts
from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.parts import find_part, read_table, table
from ncclbench.store.model import Run

FILE = Path(parts.__file__).with_name("parts.toml")


def entries() -> list[tuple[str, dict[str, Any]]]:
    content = tomllib.loads(FILE.read_text("utf-8"))
    found = [(f"link {name}", entry) for name, entry in content["link"].items()]
    found += [(f"nic {name}", entry) for name, entry in content["nic"].items()]
    found += [(f"part {entry['id']}", entry) for entry in content["part"]]
    found += [(f"expected {entry['part']} {entry['ops']}", entry) for entry in content["expected"]]
    return found


@pytest.mark.parametrize("entry", [entry for _, entry in entries()], ids=[name for name, _ in entries()])
def test_every_entry_says_where_from_and_when(entry: dict[str, Any]) -> None:
    assert re.fullmatch(r"https?://[\w.-]+\.\w+/\S+", entry["source"])
    assert not re.search(r"[?&]page=", entry["source"]), "page 8 of a list holds something else next month"
    assert date.fromisoformat(entry["date"]) >= date(2026, 1, 1)


@pytest.mark.parametrize("name", table().links)
def test_links_add_up_to_their_peak(name: str) -> None:
    link = table().links[name]
    assert link.peak_GBs > 0
    assert (link.links is None) == (link.link_GBs is None)
    if link.links is not None and link.link_GBs is not None:
        assert link.links * link.link_GBs == pytest.approx(link.peak_GBs)
    assert not link.mesh or link.links, "what fewer GPUs have follows from the links"


def test_one_direction_is_what_busbw_is_compared_with() -> None:
    """Data sheets add both directions up: 900 GB/s for H100, 1800 for B200, 600 for A100, 300 for V100."""
    peaks = {part.id: part.link.peak_GBs for part in table().parts if part.link is not None}
    expected = {
        "v100-sxm": 150,
        "a100-sxm": 300,
        "h100-sxm": 450,
        "h200-sxm": 450,
        "b200": 900,
        "mi300x": 448,
    }
    assert {name: peaks[name] for name in expected} == expected


def test_every_statement_is_of_a_size_and_not_above_reason() -> None:
    parts_by_id = {part.id: part for part in table().parts}
    assert len(parts_by_id) == len(table().parts)
    for entry in table().expected:
        assert bool(entry.sizes) != (entry.from_bytes is not None), entry
        assert entry.kind in ("stated", "published")
        link = parts_by_id[entry.part].link
        assert link is not None
        # In-network reduction at most doubles what a wire carries.
        assert 0 < entry.busbw_GBs < 2 * link.peak_GBs


def test_a_faulty_table_is_not_taken(tmp_path: Path) -> None:
    text = FILE.read_text("utf-8")
    for before, after, error in (
        ('part = "gh200"', 'part = "gh2000"', ValueError),
        ('ops = ["all_gather"]', 'ops = ["allgather"]', ValueError),
        ('link = "nvlink-1"', 'link = "nvlink-0"', KeyError),
        ("peak_GBs = 80.0\n", "", TypeError),
        ("memory_GBs = 732\n", "memory = 732\n", TypeError),
    ):
        assert before in text
        file = tmp_path / "parts.toml"
        file.write_text(text.replace(before, after, 1))
        with pytest.raises(error):
            read_table(file)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H800", "h800-sxm"),
        ("NVIDIA A800-SXM4-80GB", "a800-sxm"),
        ("NVIDIA GH200 120GB", "gh200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GB300", "gb300"),
        ("A100-SXM4-40GB", "a100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm"),
        ("NVIDIA A100-SXM-80GB", "a100-sxm"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("Tesla V100-SXM2-32GB", "v100-sxm"),
        ("Tesla V100-PCIE-16GB", "v100-pcie"),
        ("Tesla P100-SXM2-16GB", "p100-sxm"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A40", "a40"),
        ("Tesla V100-SXM3-32GB-H", "v100-sxm"),
        ("AMD Instinct MI325X", "mi325x"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI355X", "mi355x"),
        ("AMD Instinct MI250X", "mi250x"),
    ],
)
def test_names_as_drivers_give_them(name: str, part: str) -> None:
    found = find_part(name)
    assert found is not None
    assert found.id == part


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100",  # of which of three boards?
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA Graphics Device",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100X",
        "NVIDIA A40-24Q",  # a part of one, for a virtual machine
        "NVIDIA B2000",
        "Tesla V100-DGXS-32GB",
        "AMD Instinct MI308X",
        "NVIDIA L40S MIG",
        "",
    ],
)
def test_a_name_that_is_only_like_a_part_is_no_part(name: str) -> None:
    assert find_part(name) is None


def test_no_name_fits_two_parts() -> None:
    for part in table().parts:
        for pattern in part.names:
            # A name of the pattern: its optional parts left out, the first of its alternatives.
            name = re.sub(r"\([^()]*\)\?|.\?", "", pattern)
            name = re.sub(r"\(([^()|]*)[^()]*\)", r"\1", re.sub(r"\[(.)[^]]*\]", r"\1", name))
            found = find_part(name)
            assert found is not None, pattern
            assert found.id == part.id


# The machine of a run.


def test_the_machine_of_a_measured_run() -> None:
    machine = machine_of(gpu_run(nranks=16, hosts=2, sizes=SMALL, nics=rdma(400)))
    assert machine.part is not None
    assert (machine.gpu, machine.part.id, machine.hosts, machine.ranks_per_host) == (H100, "h100-sxm", 2, 8)
    assert machine.ports.rates_gbps == (400.0,) * 8
    assert machine.ports.GBs == 400.0


def test_names_that_only_ranks_carry_are_found_and_two_kinds_are_no_part() -> None:
    run = gpu_run(nranks=2, sizes=SMALL)
    environment = run.meta["environment"]
    del environment["common"]["gpu"]
    for rank in environment["ranks"]:
        rank["gpu"] = {"name": "NVIDIA B200"}
    assert machine_of(run).gpu == "NVIDIA B200"
    environment["ranks"][1]["gpu"] = {"name": "NVIDIA H200"}
    machine = machine_of(run)
    assert machine.part is None
    assert machine.why_no_part == "several kinds of GPU: NVIDIA B200, NVIDIA H200"


def test_an_unknown_name_says_so() -> None:
    machine = machine_of(gpu_run("NVIDIA Z900", nranks=2, sizes=SMALL))
    assert machine.part is None
    assert machine.why_no_part == "no entry in the table of parts is called NVIDIA Z900"


def test_only_the_fastest_ports_that_are_up_count_and_the_poorest_host_decides() -> None:
    slow_and_down = [
        *rdma(400, 4),
        *rdma(200, 2),
        *rdma(400, 4, "DOWN"),
        {"name": "eth0", "rdma": False, "rate_Gbs": 800},
    ]
    run = gpu_run(nranks=4, hosts=2, sizes=SMALL, nics=slow_and_down)
    assert machine_of(run).ports.rates_gbps == (400.0,) * 4
    run.meta["environment"]["hosts"][1]["topology"]["nics"] = rdma(400, 3)
    assert machine_of(run).ports.rates_gbps == (400.0,) * 3
    run.meta["environment"]["hosts"][1]["topology"] = None
    assert machine_of(run).ports.rates_gbps == (), "what one host carries is unknown"


def test_ports_without_rdma_count_where_there_are_no_others() -> None:
    nics = [{"name": f"eth{index}", "rdma": False, "state": "up", "rate_Gbs": 100.0} for index in range(2)]
    assert machine_of(gpu_run(nranks=4, hosts=2, sizes=SMALL, nics=nics)).ports.GBs == 25.0


@pytest.mark.parametrize(
    ("variables", "off"),
    [
        ({"NCCL_NVLS_ENABLE": "0"}, True),
        ({"NCCL_ALGO": "Ring"}, True),
        ({"NCCL_NVLS_ENABLE": "2"}, False),
        ({}, False),
    ],
)
def test_settings_that_rule_out_in_network_reduction(variables: dict[str, str], off: bool) -> None:
    run = gpu_run(nranks=2, sizes=SMALL)
    run.meta["environment"]["common"]["variables"] = variables
    assert machine_of(run).nvls_off is off


@pytest.mark.parametrize(
    "environment", [None, {}, {"hosts": None, "ranks": "?", "common": []}, {"hosts": [None]}]
)
def test_a_run_that_tells_nothing_has_an_unknown_machine(environment: Any) -> None:
    run = make_run(sizes=SMALL)
    run.meta["environment"] = environment
    machine = machine_of(run)
    assert (machine.part, machine.hosts, machine.ports.rates_gbps) == (None, None, ())
    assert machine.why_no_part == "the GPU is unknown"


def imported(*files: dict[str, Any]) -> Run:
    run = make_run(sizes=SMALL)
    run.meta |= {"kind": "import", "environment": None, "imported": {"files": list(files)}}
    return run


def test_rows_of_an_imported_run_have_the_machine_of_their_invocation() -> None:
    hopper = {"gpu": H100, "nhosts": 100, "ranks_per_host": 8, "rows_taken": 1}
    unlisted = {"gpu": None, "nhosts": None, "ranks_per_host": None, "rows_taken": 1}
    blackwell = {**unlisted, "gpu": "NVIDIA B200", "nhosts": 1, "environment": {"NCCL_NVLS_ENABLE": "0"}}
    # What stands of a file as a whole is not what its invocations ran on.
    machine = machine_of(
        imported(
            {"gpu": H100, "hosts": ["a"], "sections": [hopper, unlisted]},
            {"gpu": H100, "hosts": ["a"], "sections": [blackwell]},
        )
    )
    first, second, third = (
        machine.under({"file": file, "section": section}) for file, section in ((0, 0), (0, 1), (1, 0))
    )
    assert (first.gpu, first.hosts, first.ranks_per_host, first.nvls_off) == (H100, 100, 8, False)
    assert (second.gpu, second.hosts, second.why_no_part) == (None, None, "the GPU is unknown")
    assert (third.gpu, third.hosts, third.nvls_off) == ("NVIDIA B200", 1, True)
    assert (machine.gpu, machine.hosts) == (None, None)
    for row in ({"file": 0, "section": 2}, {"file": 2, "section": 0}, {"file": 0, "section": None}):
        assert machine.under(row).hosts is None


def test_what_all_invocations_share_is_known_of_the_run() -> None:
    section = {"gpu": H100, "nhosts": 2, "ranks_per_host": 8, "rows_taken": 3}
    failed = {"gpu": None, "nhosts": None, "rows_taken": 0}
    machine = machine_of(imported({"sections": [failed, section]}, {"sections": [section]}))
    assert (machine.gpu, machine.hosts, machine.ranks_per_host) == (H100, 2, 8)
    assert machine.under({"op": "all_reduce"}) is machine


def test_a_single_imported_file_may_be_described_by_the_environment() -> None:
    run = imported({"gpu": None, "hosts": [], "nranks": 8})
    run.meta["environment"] = gpu_run(sizes=SMALL).meta["environment"]
    machine = machine_of(run)
    assert (machine.gpu, machine.hosts) == (H100, 1)
    assert machine.under({"file": 0}) is machine
