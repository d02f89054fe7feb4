"""No secret of a log is recorded, wherever in the log it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from import_reading import V1, edited
from test_import_command import LOG

from ncclbench.cli.app import run as run_command

SECRETS = {
    "NCCL_NET_AUTH": "ghp_abcdefghij0123456789abcdefghij012345",
    "NCCL_PLUGIN_HEADER": "hf_abcdefghijklmnop",
    "UCX_PROXY": "https://bob:hunter2@proxy.example:80",
    "FI_EFA_PSK": "correcthorse",
    "RCCL_API_TOKEN": "t0psecret",
    "NCCL_LONG_URL": "https://" + "u" * 300 + ":hunter2@proxy.example",
}


def written(folder: Path) -> str:
    return "".join(file.read_text("utf-8") for file in sorted(folder.iterdir()))


def imported(text: str, tmp_path: Path) -> Path:
    file, folder = tmp_path / "x.log", tmp_path / "run"
    file.write_text(text)
    assert run_command(["import", str(file), "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "line",
    [
        "mpirun -np 2 -x {name}={value} -x NCCL_ALGO=Ring ./all_reduce_perf -b 1M",
        "export {name}={value}; export NCCL_ALGO=Ring",
        "node0:1:1 [0] NCCL INFO {name} set by environment to {value}.\n"
        "node0:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
    ],
)
def test_variables_in_a_log(name: str, line: str, tmp_path: Path) -> None:
    value = SECRETS[name]
    folder = imported(line.format(name=name, value=value) + "\n" + LOG, tmp_path)
    found = written(folder)
    assert value not in found
    assert "hunter2" not in found
    sections = json.loads((folder / "run.json").read_text())["imported"]["files"][0]["sections"]
    environment = sections[0]["environment"]
    assert environment["NCCL_ALGO"] == "Ring"
    assert environment.get(name, "(not recorded)") == "(not recorded)"


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: node0: cannot reach https://bob:hunter2@proxy.example",
        "mpirun noticed that ./all_reduce_perf --password hunter2 exited on signal 9",
        "node0: Test NCCL failure common.cu:1005 'token=hunter2 refused'",
        "invalid op password=hunter2, defaulting to sum",
    ],
)
def test_lines_that_are_kept_as_they_stand(line: str, tmp_path: Path) -> None:
    assert "hunter2" not in written(imported(LOG.replace("#  ", f"{line}\n#  ", 1), tmp_path))


def test_the_reason_of_a_failure_that_is_no_secret_is_kept(tmp_path: Path) -> None:
    line = "node0: Test NCCL failure common.cu:1005 'unhandled system error'"
    assert "unhandled system error" in written(imported(LOG + line + "\n", tmp_path))


def test_errors_and_variables_of_json(tmp_path: Path) -> None:
    file = edited(
        tmp_path,
        V1,
        ('"errors":[""]', '"errors":["https://bob:hunter2@proxy.example refused"]'),
        ('"NCCL_DEBUG=WARN"', '"UCX_PROXY=https://' + "u" * 2000 + ':hunter2@proxy.example"'),
    )
    assert run_command(["import", str(file), "--out", str(tmp_path / "run")]) == 0
    found = written(tmp_path / "run")
    assert "hunter2" not in found
    assert "uuuu" not in found
