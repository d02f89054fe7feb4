"""What a preflight looks at, and the words of its findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.environment.collect import Description

Finding = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flight:
    """What is checked: every rank's whole description, and what is asked of them."""

    hosts: Sequence[Description]
    ranks: Sequence[Description]
    nranks: int
    backends: Sequence[str]
    share_gpu: bool
    uses_cuda: bool
    uses_nccl: bool

    def on_hosts(self) -> list[tuple[Description, list[Description]]]:
        """Each host with its ranks."""
        members = grouped(self.ranks, lambda rank: rank["host"])
        return [(host, members[index]) for index, host in enumerate(self.hosts) if index in members]

    def on_machines(self) -> list[tuple[str, Description, list[Description]]]:
        """Each machine by name, with a host of it and its ranks: containers may be hosts of one machine."""
        boots = [host.get("boot_id") or index for index, host in enumerate(self.hosts)]
        machines = []
        for ranks in grouped(self.ranks, lambda rank: boots[rank["host"]]).values():
            names = [self.hosts[index]["name"] for index in grouped(ranks, lambda rank: rank["host"])]
            name = names[0] if len(names) == 1 else f"the machine of {some(names)}"
            machines.append((name, self.hosts[ranks[0]["host"]], ranks))
        return machines


def finding(severity: str, ranks: Sequence[Description], what: str, mend: str) -> Finding:
    """A finding about these ranks; ``severity`` is "error" or "warning"."""
    return {"severity": severity, "ranks": [rank["rank"] for rank in ranks], "what": what, "mend": mend}


def as_one(found: Sequence[Finding]) -> list[Finding]:
    """Findings of one kind as a single one: the words of the first, and everybody's ranks."""
    if len(found) < 2:
        return [*found]
    ranks = sorted({rank for each in found for rank in each["ranks"]})
    what = f"{found[0]['what']} (and {len(found) - 1} more like it)"
    return [{**found[0], "ranks": ranks, "what": what}]


def grouped(
    ranks: Sequence[Description], key: Callable[[Description], Hashable]
) -> dict[Any, list[Description]]:
    """Ranks by what ``key`` says of them, in order of first appearance."""
    groups: dict[Any, list[Description]] = defaultdict(list)
    for rank in ranks:
        groups[key(rank)].append(rank)
    return groups


def variable(rank: Description, name: str) -> str:
    """An environment variable of the rank; "" where it is not set."""
    return str((rank.get("variables") or {}).get(name, ""))


def of_gpu(rank: Description, key: str) -> Any:
    """One thing of the rank's GPU; None where it has none or it is not known."""
    return (rank.get("gpu") or {}).get(key)


def odd(values: Mapping[Any, list[Description]]) -> list[Description]:
    """The ranks that do not have what most have."""
    most = max(values, key=lambda value: len(values[value]))
    return [rank for value, ranks in values.items() if value != most for rank in ranks]


def some(values: Iterable[Any], most: int = 4) -> str:
    """Values in a line, those beyond ``most`` only counted."""
    texts = [str(value) for value in values]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")
