"""What an overlap run keeps: lines survive the disk, and damaged ones are refused by number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from overlap_fixtures import make_overlap, make_skip, make_times, written

from ncclbench.errors import RequestError
from ncclbench.stats.overlap import overlap_rows
from ncclbench.stats.overlap_words import sentences
from ncclbench.store.reader import load_run
from ncclbench.terminal.overlap import overlap_lines

LINES = [
    make_times(),
    make_times(0.9, epoch=1, comm_done_us=None, compute_done_us=None, mode="graph", free_sms=8),
    make_skip(),
]


def folder_of(path: Path) -> Path:
    return written(path, make_overlap(LINES))


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    run = load_run(folder_of(tmp_path / "run"))
    assert run.results == LINES
    assert run.problems == []


def test_a_torn_last_line_is_dropped_and_told(tmp_path: Path) -> None:
    samples = folder_of(tmp_path / "run") / "samples.jsonl"
    samples.write_bytes(samples.read_bytes()[:-9])
    run = load_run(samples.parent)
    assert run.results == LINES[:-1]
    assert any("torn" in problem for problem in run.problems)


def _shorter(line: dict[str, Any]) -> dict[str, Any]:
    return line | {"times_us": line["times_us"] | {"comm": [[1.0], [1.0]]}}


def _ragged(line: dict[str, Any]) -> dict[str, Any]:
    return line | {"compute_done_us": [line["compute_done_us"][0], line["compute_done_us"][1][:1]]}


@pytest.mark.parametrize(
    ("at", "change", "said"),
    [
        (0, lambda line: line | {"times_us": {}}, "times_us has"),
        (0, lambda line: line | {"times_us": line["times_us"] | {"more": [[1.0]]}}, "times_us has"),
        (0, _shorter, "not all its times"),
        (0, _ragged, "not all its times"),
        (0, lambda line: line | {"order": line["order"][:-1]}, "order does not name"),
        (0, lambda line: line | {"order": ["comm"] * 16}, "order does not name"),
        (0, lambda line: line | {"length": 0}, ""),
        (0, lambda line: line | {"wrong": -1}, ""),
        (0, lambda line: line | {"mode": "both"}, ""),
        (0, lambda line: {key: line[key] for key in line if key != "dtype"}, ""),
        (0, lambda line: line | {"times_us": line["times_us"] | {"comm": [[-1.0] * 4] * 2}}, ""),
        (0, lambda line: line | {"times_us": line["times_us"] | {"comm": []}}, ""),
        (2, lambda line: line | {"status": "ok"}, ""),
        (2, lambda line: line | {"type": "pair"}, ""),
    ],
)
def test_a_damaged_line_is_refused_by_number(
    tmp_path: Path, at: int, change: Callable[[dict[str, Any]], dict[str, Any]], said: str
) -> None:
    samples = folder_of(tmp_path / "run") / "samples.jsonl"
    text = samples.read_text().splitlines()
    text[at] = json.dumps(change(json.loads(text[at])))
    samples.write_text("\n".join(text) + "\n")
    with pytest.raises(RequestError, match=f"samples.jsonl line {at + 1} is damaged: .*{said}") as caught:
        load_run(samples.parent)
    assert "\n" not in str(caught.value)


def test_times_of_other_ranks_than_the_run_has_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", make_overlap([make_times(nranks=3)]))
    with pytest.raises(RequestError, match="line 1 is damaged: it has times of 3 ranks of 2"):
        load_run(folder)


ANY_NUMBER = st.one_of(
    st.integers(-2, 9),
    st.sampled_from([2**31, 2**63, 10**30, 1e308, 5e-324, 0.0]),
    st.none(),
    st.text(max_size=3),
)


@example(at=2, key="arm", value="\r", times=[4, "", None, None])
@given(
    at=st.integers(0, len(LINES) - 1),
    key=st.sampled_from(["op", "nbytes", "arm", "compute", "free_sms", "length", "epoch", "wrong", "order"]),
    value=st.one_of(ANY_NUMBER, st.lists(ANY_NUMBER, max_size=4)),
    times=st.lists(ANY_NUMBER, min_size=4, max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_whatever_a_line_holds_gives_an_answer_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, at: int, key: str, value: Any, times: list[Any]
) -> None:
    samples = folder_of(tmp_path_factory.mktemp("damage") / "run") / "samples.jsonl"
    text = samples.read_text().splitlines()
    line = json.loads(text[at]) | {key: value}
    if "times_us" in line:
        line["times_us"]["together"] = [times, times]
    text[at] = json.dumps(line)
    samples.write_text("\n".join(text) + "\n")
    try:
        run = load_run(samples.parent)
    except RequestError as error:
        said = [str(error)]
    else:
        rows = overlap_rows(run)
        json.dumps(rows)
        said = [*sentences(run, rows), *overlap_lines(rows)]
    assert all(len(line.splitlines()) == 1 for line in said)
