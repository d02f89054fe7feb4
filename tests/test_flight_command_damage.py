"""Damaged and hostile dumps: whatever is in them, one of three codes and never a traceback."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from flying import job

from ncclbench.cli.app import run

# Values that no recorder writes, put in place of any that one does.
STRANGE = (
    None,
    -1,
    2**70,
    10**400,
    1.5,
    float("inf"),
    "",
    "\ud800",
    "x" * 5_000,
    [],
    {},
    [[[]]],
    {"a": {"b": [1]}},
    True,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    found = [(value, key) for key in keys]
    for key in keys:
        found += places(value[key])
    return found


def swapped(seed: int) -> dict[str, Any]:
    """A dump in which some values are others."""
    draw = random.Random(seed)
    content = pickle.loads(pickle.dumps(job(nranks=2, numbers=4, absent=[1])[0]))
    for container, key in draw.sample(places(content), draw.randint(1, 4)):
        container[key] = draw.choice(STRANGE)
    assert isinstance(content, dict)
    return content


def flipped(content: bytes, seed: int) -> bytes:
    """The same with some bytes changed, cut out or doubled."""
    draw = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(damaged))
        kind = draw.randrange(3)
        if kind == 0:
            damaged[at] = draw.randrange(256)
        elif kind == 1:
            del damaged[at : at + draw.randint(1, 40)]
        else:
            damaged[at:at] = damaged[at : at + draw.randint(1, 40)]
    return bytes(damaged)


def ends_well(paths: list[Path], capsys: pytest.CaptureFixture[str], *words: str) -> None:
    code = run(["flight", *map(str, paths), "--json", *words])
    told = capsys.readouterr()
    assert code in (0, 1, 2), told.err
    assert "Traceback" not in told.err
    assert "a fault in ncclbench" not in told.err
    found = json.loads(told.out)
    assert ("verdict" in found) == (code < 2)


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_damaged_bytes(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = job(nranks=2, numbers=6, absent=[1])
    contents = [
        json.dumps(one).encode() if form == "json" else pickle.dumps(one, protocol=2)
        for one in whole.values()
    ]
    paths = [tmp_path / f"rank_{rank}" for rank in whole]
    paths[1].write_bytes(contents[1])
    for seed in range(400):
        paths[0].write_bytes(flipped(contents[0], seed))
        ends_well(paths if seed % 2 else paths[:1], capsys)


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_strange_values(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "rank_1"
    other.write_text(json.dumps(job(nranks=2, numbers=4, absent=[1])[1]), encoding="utf-8")
    for seed in range(400):
        path = tmp_path / "rank_0"
        content = swapped(seed)
        path.write_bytes(
            json.dumps(content).encode() if form == "json" else pickle.dumps(content, protocol=2)
        )
        page = ("--out", str(tmp_path / "page.html"), "--trace", str(tmp_path / "trace.json"))
        ends_well([path, other] if seed % 2 else [path], capsys, *(page if seed % 10 == 0 else ()))
