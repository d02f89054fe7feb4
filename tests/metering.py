"""What passes between the ranks of an emulated cluster, measured through torch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

from emulated import Cluster
from sweeping import wait_until

# A pair of ranks: the sender, and the receiver.
Pair = tuple[int, int]

# Large beside the token buckets of the links.
NBYTES = 4 << 20

# Runs on every rank: answers questions about pairs with the seconds that each message took at its receiver,
# which says when to send. Pairs of one question that share no rank go at the same time.
_SCRIPT = f"""
import itertools, json, pathlib, sys, time
import torch, torch.distributed as dist

folder = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
rank, go, data = dist.get_rank(), torch.zeros(1), torch.zeros({NBYTES}, dtype=torch.uint8)
for number in itertools.count():
    asked = [None]
    if rank == 0:
        question = folder / f"question-{{number}}"
        while not question.exists():
            time.sleep(0.01)
        asked = [json.loads(question.read_text())]
    dist.broadcast_object_list(asked)
    dist.barrier()
    seconds = []
    for src, dst in asked[0]["pairs"]:
        seconds.append([])
        for _ in range(asked[0]["messages"]):
            if rank == src:
                dist.recv(go, dst)
                dist.send(data, dst)
            if rank == dst:
                dist.send(go, src)
                before = time.perf_counter()
                dist.recv(data, src)
                seconds[-1].append(time.perf_counter() - before)
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, seconds)
    if rank == 0:
        answer = [everybody[dst][index] for index, (src, dst) in enumerate(asked[0]["pairs"])]
        writing = folder / f"writing-{{number}}"
        writing.write_text(json.dumps(answer))
        writing.rename(folder / f"answer-{{number}}")
"""


class Meter:
    """Ranks in all hosts of a cluster that send messages to each other when asked to."""

    def __init__(self, cluster: Cluster, folder: Path, nproc_per_host: int = 1) -> None:
        """Start them; they end with the cluster.

        Args:
            folder: an empty one, through which they are spoken to.
        """
        self.cluster = cluster
        self._folder = folder
        self._asked = itertools.count()
        cluster.start(nproc_per_host, ("-c", _SCRIPT, str(folder)))

    def ask(self, *pairs: Pair, messages: int) -> Callable[[], list[list[float]]]:
        """Let pairs send messages; what is returned waits for the seconds of each, pair by pair."""
        number = next(self._asked)
        asking = self._folder / f"asking-{number}"
        asking.write_text(json.dumps({"pairs": pairs, "messages": messages}))
        asking.rename(self._folder / f"question-{number}")

        def answer() -> list[list[float]]:
            file = self._folder / f"answer-{number}"
            wait_until(file.exists, "the answer")
            seconds: list[list[float]] = json.loads(file.read_text())
            return seconds

        return answer

    def rate(self, *pairs: Pair, messages: int = 1) -> float:
        """Mbit/s of pairs that share no rank, at the same time, all together."""
        seconds = self.ask(*pairs, messages=messages)()
        return mbit_per_s(max(map(sum, seconds)), len(pairs) * messages)


def mbit_per_s(seconds: float, messages: int = 1) -> float:
    """The rate at which messages came that took so long together."""
    return messages * NBYTES * 8 / 1e6 / seconds
