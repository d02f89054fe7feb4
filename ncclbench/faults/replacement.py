"""A cold replacement: a fresh interpreter that takes the victim's place, as a scheduler would start it.

Run as ``python -m ncclbench.faults.replacement TASK PIPE STAMPS``: the task as JSON, two descriptors.
It is forked and then replaced by exec, so that it still dies with the orchestrator.
"""

from __future__ import annotations

import json
import os
import sys
from multiprocessing.connection import Connection
from typing import NoReturn

from ncclbench.faults.stamps import Stamps
from ncclbench.faults.talk import RankTask


def become(task: RankTask, pipe: Connection, stamps: Stamps, environment: dict[str, str]) -> NoReturn:
    """In a forked child: be a fresh interpreter that runs ``main``."""
    for descriptor in (pipe.fileno(), stamps.descriptor):
        os.set_inheritable(descriptor, True)
    words = [json.dumps(task.to_json()), str(pipe.fileno()), str(stamps.descriptor)]
    command = [sys.executable, "-m", "ncclbench.faults.replacement", *words]
    os.execve(sys.executable, command, environment)  # noqa: S606  our own interpreter, no shell


def main(arguments: list[str]) -> NoReturn:
    """Run the rank: torch is imported here, which is most of what a cold start takes."""
    task = RankTask.from_json(json.loads(arguments[0]))
    pipe = Connection(int(arguments[1]))
    stamps = Stamps(task.nranks + 1, int(arguments[2]))
    from ncclbench.faults.rank import run_rank

    run_rank(task, pipe, stamps.seat(task.seat))


if __name__ == "__main__":
    main(sys.argv[1:])
