"""The machine of a plan: this one, one that somebody wrote down, one that a run tells of, and bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ncclbench.errors import RequestError
from ncclbench.plan.machine import ABSURD_GPU_BYTES, GPU_CACHE_BYTES, Machine

H200 = """
name = "HGX H200"
device = "cuda"
ranks_per_host = 8
memory = "2T"            # of a host
gpu_memory = "141G"
gpu_cache = 62914560
"""


def written(folder: Path, text: str | bytes, name: str = "machine.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def environment(**rank: Any) -> dict[str, Any]:
    """Two hosts, of three ranks and one."""
    ranks = [{"rank": n, "host": n // 3, "local_rank": n % 3, "device": "cpu", **rank} for n in range(4)]
    hosts = [
        {"name": "n0", "memory_bytes": 8 << 30, "last_level_cache_bytes": 1 << 20},
        {"name": "n1", "memory_bytes": 4 << 30, "last_level_cache_bytes": 2 << 20},
    ]
    return {"hosts": hosts, "ranks": ranks, "common": {}}


def test_here_is_what_this_system_tells() -> None:
    here = Machine.here("cpu", 4)
    assert (here.device, here.ranks_per_host) == ("cpu", 4)
    assert here.memory_bytes is not None
    assert 0 < here.most_bytes("cpu", 4) <= here.memory_bytes // 4  # type: ignore[operator]
    assert here.most_bytes("cuda", 4) == ABSURD_GPU_BYTES


def test_as_people_write_it(tmp_path: Path) -> None:
    machine = Machine.read(written(tmp_path, H200))
    assert machine == Machine(
        "HGX H200", "cuda", 8, 2 << 40, 141 << 30, machine.last_level_cache_bytes, 60 << 20
    )
    assert machine.rotation_bytes("cuda", 8) == 60 << 20
    assert machine.most_bytes("cpu", 8) == 256 << 30


def test_as_a_run_tells_it_with_the_least_memory_and_the_largest_cache(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"schema": 1, "environment": environment()}), "run.json")
    for named in (path, tmp_path):
        machine = Machine.read(named)
        assert (machine.name, machine.device, machine.ranks_per_host) == ("n0", "cpu", 3)
        assert (machine.memory_bytes, machine.last_level_cache_bytes) == (4 << 30, 2 << 20)


def test_what_was_free_counts_before_what_is_built_in(tmp_path: Path) -> None:
    told = environment(now={"available_bytes": 1 << 30})
    assert Machine.read(written(tmp_path, json.dumps({"environment": told}))).memory_bytes == 1 << 30


def test_gpus_that_all_have_alike_stand_in_common(tmp_path: Path) -> None:
    told = environment(device="cuda:0", gpu={"uuid": "GPU-1"})
    told["common"] = {"gpu": {"memory_total_bytes": 80 << 30}}
    machine = Machine.read(written(tmp_path, json.dumps({"environment": told})))
    assert (machine.device, machine.gpu_memory_bytes) == ("cuda", 80 << 30)
    assert machine.gpu_cache_bytes == GPU_CACHE_BYTES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "device is missing"),
        ("device = 'gpu'", 'neither "cpu" nor "cuda"'),
        ("device = 'cpu'", "ranks_per_host is missing"),
        ("device = 'cpu'\nranks_per_host = 0", "take 1 to 4096"),
        ("device = 'cpu'\nranks_per_host = true", "no whole number"),
        ("device = 'cpu'\nranks_per_host = 2\nmemroy = '1G'", "did you mean 'memory'"),
        ("device = 'cpu'\nranks_per_host = 2\nmemory = '1X'", "memory '1X' is not a size"),
        ("device = 'cpu'\nranks_per_host = 2\nmemory = -1", "memory is no size"),
        ("device = 'cpu'\nranks_per_host = 2\nmemory = nan", "memory is no size"),
        ('device = "cpu"\nranks_per_host = 2\nname = "a\\u001b[31m"', "name is no text of a line"),
        ("device = ", "is no TOML"),
        ("\xff\xfe", "is no TOML"),
        (b"\xff\xfe\x00", "it is no text"),
        ("{", "is no JSON"),
        ("{}", "does not tell where it ran"),
        ('{"environment": []}', "does not tell where it ran"),
        ('{"environment": {"hosts": [], "ranks": []}}', "has no hosts"),
        ('{"environment": {"hosts": [{}], "ranks": [1]}}', "has no ranks"),
        ("[" * 100_000, "is no TOML"),
        ("a = " + "[" * 100_000, "is nested too deeply"),
        ('{"a":' * 100_000, "is nested too deeply"),
    ],
)
def test_bad_files_are_one_line_that_names_them(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(RequestError) as raised:
        Machine.read(path)
    line = str(raised.value)
    assert said in line
    assert str(path) in line
    assert line.isprintable()


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    no_file = Path("/dev/null")
    for path, said in ((tmp_path / "none", "not there"), (tmp_path, "not there"), (no_file, "no file")):
        with pytest.raises(RequestError, match=said):
            Machine.read(path)
