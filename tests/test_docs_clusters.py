"""docs/clusters.md: its manifest is what the CRD takes, its commands run on emulated hosts as they stand."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated import Cluster, JobOutcome
from emulated_launchers import SLURM_ENV, mpirun_options
from test_docs import ROOT, blocks
from tools import miss

PAGE = ROOT / "docs" / "clusters.md"
MANIFEST = ROOT / "docs" / "pytorchjob.yaml"
BLOCKS = {
    block.action.removeprefix("live "): block.text
    for block in blocks(PAGE)
    if block.action.startswith("live ")
}

# What is used of the CRD and of the pod's template in it: a type, or the fields below.
# kubeflow/training-operator, manifests/base/crds/kubeflow.org_pytorchjobs.yaml, version v1
_POD: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": str,
                "image": str,
                "command": [str],
                "resources": {"limits": {"nvidia.com/gpu": (int, str)}},
                "volumeMounts": [{"name": str, "mountPath": str}],
            }
        ],
        "volumes": [
            {
                "name": str,
                "persistentVolumeClaim": {"claimName": str},
                "emptyDir": {"medium": str, "sizeLimit": str},
            }
        ],
    }
}
_REPLICA = {"replicas": int, "restartPolicy": str, "template": _POD}
_CRD = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str},
    "spec": {
        "nprocPerNode": str,
        "runPolicy": {
            "activeDeadlineSeconds": int,
            "backoffLimit": int,
            "cleanPodPolicy": str,
            "ttlSecondsAfterFinished": int,
        },
        "pytorchReplicaSpecs": {"Master": _REPLICA, "Worker": _REPLICA},
    },
}


def problems(found: Any, schema: Any, where: str = "") -> Iterator[str]:
    """Fields that the schema has not, or not of that type."""
    if isinstance(schema, dict):
        if not isinstance(found, dict):
            yield f"{where} is no mapping"
            return
        for name, value in found.items():
            if name in schema:
                yield from problems(value, schema[name], f"{where}.{name}")
            else:
                yield f"{where}.{name} is no field"
    elif isinstance(schema, list):
        if not isinstance(found, list):
            yield f"{where} is no list"
            return
        for number, value in enumerate(found):
            yield from problems(value, schema[0], f"{where}[{number}]")
    elif not isinstance(found, schema) or isinstance(found, bool):
        yield f"{where} is {found!r}"


@pytest.fixture
def manifest() -> Any:
    try:
        import yaml
    except ImportError:
        miss("PyYAML is missing: make test installs it")
    (document,) = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    return document


def test_the_manifest_has_fields_of_the_crd_only(manifest: Any) -> None:
    assert list(problems(manifest, _CRD)) == []
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    spec = manifest["spec"]
    assert spec["runPolicy"]["cleanPodPolicy"] in ("None", "Running", "All")
    assert spec["pytorchReplicaSpecs"]["Master"]["replicas"] == 1
    for replica in spec["pytorchReplicaSpecs"].values():
        assert replica["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        (container,) = replica["template"]["spec"]["containers"]
        # The operator looks for the container of this name.
        assert container["name"] == "pytorch"
        assert container["image"] == "IMAGE"
        assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == spec["nprocPerNode"]
        volumes = {volume["name"] for volume in replica["template"]["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        (("spec", "nprocPerNode"), 8, ".spec.nprocPerNode is 8"),
        (("spec", "replicas"), 2, ".spec.replicas is no field"),
        (("spec", "pytorchReplicaSpecs", "Master", "replicas"), True, "Master.replicas is True"),
        (("spec", "pytorchReplicaSpecs", "Worker", "template"), [], "Worker.template is no mapping"),
    ],
)
def test_the_check_finds_what_is_wrong(path: tuple[str, ...], value: Any, found: str, manifest: Any) -> None:
    place = manifest
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (problem,) = problems(manifest, _CRD)
    assert found in problem


def test_every_engine_has_a_command_that_is_run() -> None:
    assert list(BLOCKS) == ["torchrun", "srun", "sbatch", "mpirun"]


# What a cluster of two hosts without GPUs takes otherwise than the page has it.
_SMALLER = {
    "HOST": "node-00",
    "--gpus-per-node 8 ": "",
    "#SBATCH --gpus-per-node=8\n": "",
    "--nproc-per-node 8": "--nproc-per-node 2",
    "--ntasks-per-node 8": "--ntasks-per-node 2",
    "--ntasks-per-node=8": "--ntasks-per-node=2",
    "-np 16": "-np 4",
    "ppr:8": "ppr:2",
    "-e 64M": "-e 64K -f 16 -n 6 --epochs 2 -w 1",
}
_LIMIT_S = 150.0


def as_run_here(text: str) -> str:
    for there, here in _SMALLER.items():
        text = text.replace(there, here)
    return text


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as up:
        yield up


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a shell on any host of a cluster has: programs, a network, a folder that is shared."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "SHARED": str(tmp_path),
    }


def in_shell(text: str) -> tuple[str, ...]:
    return ("bash", "-euc", f'cd "$SHARED"\n{text}')


def only_run(folder: Path) -> dict[str, Any]:
    """The run that is in results/."""
    (path,) = folder.glob("results/*/run.json")
    meta: dict[str, Any] = json.loads(path.read_text())
    return meta


def check(folder: Path, launcher: str) -> None:
    meta = only_run(folder)
    assert (meta["status"], meta["attempts"][0]["launcher"]) == ("complete", launcher)
    assert [host["name"] for host in meta["environment"]["hosts"]] == ["node-00", "node-01"]
    assert len(meta["environment"]["ranks"]) == 4


@pytest.mark.full
def test_torchrun_as_written(cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> None:
    argv = in_shell(as_run_here(BLOCKS["torchrun"]))
    done: JobOutcome = cluster.run_everywhere(argv, _LIMIT_S, environment)
    assert done.codes == (0, 0), done.err
    check(tmp_path, "torchrun")


@pytest.mark.full
def test_srun_as_written(cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> None:
    cluster.require("srun")
    done = cluster.run(0, in_shell(as_run_here(BLOCKS["srun"])), _LIMIT_S, environment | SLURM_ENV)
    assert done.code == 0, done.err
    check(tmp_path, "srun")


@pytest.mark.full
def test_sbatch_as_written(cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> None:
    cluster.require("srun")
    (tmp_path / "sweep.sbatch").write_text(as_run_here(BLOCKS["sbatch"]))
    submit = in_shell("sbatch --wait sweep.sbatch")
    done = cluster.run(0, submit, _LIMIT_S, environment | SLURM_ENV)
    (log,) = tmp_path.glob("ncclbench-*.log")
    assert done.code == 0, log.read_text()
    check(tmp_path, "srun")


@pytest.mark.full
def test_mpirun_as_written(cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> None:
    cluster.require("mpirun")
    here = shlex.join(mpirun_options(cluster.names, 2, environment))
    text = as_run_here(BLOCKS["mpirun"]).replace("mpirun ", f"mpirun {here} ", 1)
    done = cluster.run(0, in_shell(text), _LIMIT_S, environment)
    assert done.code == 0, done.err
    check(tmp_path, "mpirun")


@pytest.mark.full
def test_the_manifests_command_with_what_the_operator_sets(
    cluster: Cluster, manifest: Any, tmp_path: Path
) -> None:
    spec = manifest["spec"]["pytorchReplicaSpecs"]
    commands = {
        kind: replica["template"]["spec"]["containers"][0]["command"] for kind, replica in spec.items()
    }
    assert commands["Master"] == commands["Worker"]
    torchrun, *words = shlex.split(as_run_here(shlex.join(commands["Master"])))
    assert torchrun == "torchrun"
    words[words.index("/results/run")] = str(tmp_path / "results" / "run")
    done = cluster.launch(2, words, _LIMIT_S, launcher="kubeflow")
    assert done.codes == (0, 0), done.err
    check(tmp_path, "torchrun")
