"""The real command under each launcher across emulated hosts, and what every rank leaves behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulated import Cluster, JobOutcome
from emulated_launchers import Launcher

LAUNCHERS: tuple[Launcher, ...] = ("torchrun", "mpirun", "srun")
LIMIT_S = 300.0

# A rank's process: the command in a folder of its own, and what it wrote and how it ended beside it.
_APART = """
import os, pathlib, subprocess, sys, time
name = next(os.environ[n] for n in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK") if n in os.environ)
mine = pathlib.Path(sys.argv[1], name)
mine.mkdir()
done = subprocess.run([sys.executable, "-m", "ncclbench", *sys.argv[2:]], cwd=mine, stdout=subprocess.PIPE)
mine.joinpath("out").write_bytes(done.stdout)
mine.joinpath("code").write_text(str(done.returncode))
time.sleep(1 if done.returncode else 0)  # launchers kill the others when they see one end badly
sys.exit(done.returncode)
"""


@dataclass(frozen=True, slots=True)
class Apart:
    """What each rank has left in a folder of its own.

    Attributes:
        folder: with a folder for each rank.
        codes, outs: exit codes and standard output by rank.
        runs: ranks that have written a run.
        outcome: how the launcher ended.
    """

    folder: Path
    codes: tuple[int, ...]
    outs: tuple[str, ...]
    runs: tuple[int, ...]
    outcome: JobOutcome

    @property
    def document(self) -> dict[str, Any]:
        """What rank 0 has said."""
        parsed: dict[str, Any] = json.loads(self.outs[0])
        return parsed

    @property
    def run(self) -> Path:
        """The run folder that rank 0 has written."""
        return self.folder / "0" / str(self.document["run"])


def apart(cluster: Cluster, folder: Path, nproc: int, *words: str, launcher: Launcher) -> Apart:
    """Run ``ncclbench WORDS`` on every rank, each with a working folder of its own."""
    folder.mkdir(parents=True)
    script = folder / "apart.py"
    script.write_text(_APART)
    # Away from the checkout another ncclbench may be installed.
    env = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    outcome = cluster.launch(nproc, (str(script), str(folder), *words), LIMIT_S, env, launcher)
    nranks = len(cluster.names) * nproc
    codes, outs, runs = [], [], []
    for rank in range(nranks):
        mine = folder / str(rank)
        codes.append(int((mine / "code").read_text()))
        outs.append((mine / "out").read_text())
        if any(path.is_dir() for path in mine.iterdir()):
            runs.append(rank)
    return Apart(folder, tuple(codes), tuple(outs), tuple(runs), outcome)


def hosts_of(run: Path) -> list[str]:
    """The host of each rank, by name, as the run has it."""
    environment = json.loads((run / "run.json").read_text())["environment"]
    return [environment["hosts"][rank["host"]]["name"] for rank in environment["ranks"]]
