"""Damaged run folders: every one gives right numbers or one line that says what is wrong and where."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store import small_run, written

from ncclbench.compare.paired import compare_run
from ncclbench.errors import RequestError
from ncclbench.stats.rows import run_rows
from ncclbench.store.reader import load_run

Path_ = tuple[str | int, ...]


def refused(path: Path) -> str:
    """The one line that refuses a run."""
    with pytest.raises(RequestError) as caught:
        load_run(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def test_what_is_no_run_is_told_apart(tmp_path: Path) -> None:
    assert "no such file or folder" in refused(tmp_path / "nowhere")
    assert "no such file or folder" in refused(tmp_path / ("x" * 300))
    assert "there is no run.json in it" in refused(tmp_path)
    (tmp_path / "file").write_text("hello")
    assert "is not a run" in refused(tmp_path / "file")


def set_at(tree: Any, path: Path_, value: Any) -> None:
    for step in path[:-1]:
        tree = tree[step]
    tree[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("schema",), 2, "written by a newer ncclbench"),
        (("schema",), "1", "no schema number"),
        (("schema",), True, "no schema number"),
        (("plan", "schema"), 99, "written by a newer ncclbench"),
        (("plan",), [], "plan"),
        (("plan", "nranks"), "2", "nranks"),
        (("plan", "nranks"), 0, "nranks"),
        (("plan", "iters"), None, "iters"),
        (("plan", "margin_us"), -1, "margin_us"),
        (("plan", "base_arm"), "nccl9", "nccl9"),
        (("plan", "statistic"), "p26", "did you mean 'p25'"),
        (("plan", "arms", 1, "id"), "gloo", "arms"),
        (("plan", "arms", 0), 7, "plan"),
        (("plan", "cases", 0, "op"), "all_reduced", "did you mean 'all_reduce'"),
        (("plan", "cases", 0, "mode"), "isolate", "did you mean 'isolated'"),
        (("plan", "cases", 0, "nranks"), 0, "0 ranks"),
        (("plan", "cases", 0, "nbytes"), 10**30, "bytes"),
        (("plan", "cases", 0, "nbytes"), 8.5, "nbytes"),
        (("environment", "hosts"), {}, "environment.hosts"),
        (("environment", "ranks", 1, "host"), 5, "host 5"),
        (("arms", "gloo"), "fine", "arms"),
        (("fence", "median_us"), "3", "fence"),
        (("status",), ["complete"], "status"),
    ],
    ids=str,
)
def test_wrong_meta_is_refused(tmp_path: Path, path: Path_, value: Any, words: str) -> None:
    folder = written(tmp_path / "run", small_run())
    meta = json.loads((folder / "run.json").read_text())
    set_at(meta, path, value)
    (folder / "run.json").write_text(json.dumps(meta))
    line = refused(folder)
    assert words in line
    assert "run.json" in line


def test_groups_of_the_world_are_refused(tmp_path: Path) -> None:
    """The world is all ranks: groups of that name would be looked up in place of them."""
    folder = written(tmp_path / "run", small_run())
    meta = json.loads((folder / "run.json").read_text())
    meta["plan"]["groups"] = {"world": [[0, 99]]}
    (folder / "run.json").write_text(json.dumps(meta))
    assert "it has groups of world, which is all ranks" in refused(folder)


@pytest.mark.parametrize("name", ["run.json", "samples.jsonl"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path / "run", small_run())
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder)


def test_a_missing_key_of_the_plan_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", small_run())
    meta = json.loads((folder / "run.json").read_text())
    del meta["plan"]["epochs"]
    (folder / "run.json").write_text(json.dumps(meta))
    assert "the plan has no 'epochs'" in refused(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": NaN}', '{"schema": 1e999}', "[" * 100_000, "\xff", '"schema"']
)
def test_no_meta_at_all_is_refused(tmp_path: Path, text: str) -> None:
    folder = written(tmp_path / "run", small_run())
    (folder / "run.json").write_bytes(text.encode("latin-1"))
    refused(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: line | {"total_us": ["1", "2", "3"]}, "total_us[0]"),
        (lambda line: line | {"total_us": [1.0, True, 3.0]}, "total_us[1]"),
        (lambda line: line | {"launch_us": [1.0, -2.0, 3.0]}, "launch_us[1]"),
        (lambda line: line | {"start_us": [1.0, 2.0]}, "different lengths"),
        (lambda line: line | {"device_us": [1.0]}, "different lengths"),
        (lambda line: line | {"device_us": line["total_us"]}, "differ in k, visits, clock"),
        (lambda line: line | {"visits": [2]}, "visits sum to 2"),
        (lambda line: line | {"turns": [0, 1]}, "1 visits and 2 turns"),
        (lambda line: line | {"k": 0}, "`$.k`"),
        (lambda line: line | {"k": 5}, "differ in k"),
        (lambda line: line | {"wrong": None}, "differ in k, visits, clock or check"),
        (lambda line: line | {"rank": 2}, "rank 2 of 2"),
        (lambda line: line | {"epoch": 0.5}, "epoch"),
        (lambda line: line | {"type": "sample"}, "sample"),
        (lambda line: {}, "type"),
        (lambda line: [line], "object"),
    ],
)
def test_wrong_lines_are_refused_by_number(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    folder = written(tmp_path / "run", small_run())
    samples = folder / "samples.jsonl"
    lines = samples.read_text().splitlines()
    lines[3] = json.dumps(change(json.loads(lines[3])))
    samples.write_text("\n".join(lines) + "\n")
    line = refused(folder)
    assert "samples.jsonl line 4 is damaged" in line
    assert words in line


# Anything at all.


def places(tree: Any, at: Path_ = ()) -> Iterator[Path_]:
    """The paths of all values in a JSON document."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in items:
        yield (*at, step)
        yield from places(value, (*at, step))


WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 10**30, 10**400, 1e15, 1e308, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
RUN = small_run(epochs=7, iters=14, sizes=[8])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("damage") / "run", RUN)


def survives(folder: Path, name: str, content: bytes) -> None:
    """The run with one file replaced is refused in one line, or gives rows that are plain JSON."""
    file = folder / name
    whole = file.read_bytes()
    file.write_bytes(content)
    refusal = ""
    try:
        run = load_run(folder)
        json.dumps([run_rows(run), compare_run(run), run.problems], allow_nan=False)
    except RequestError as error:
        refusal = str(error)
    finally:
        file.write_bytes(whole)
    assert "\n" not in refusal


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_value_in_meta(folder: Path, data: st.DataObject) -> None:
    meta = json.loads(json.dumps(RUN.meta))
    path = data.draw(st.sampled_from(sorted(places(meta), key=str)))
    set_at(meta, path, data.draw(WEIRD))
    survives(folder, "run.json", json.dumps(meta).encode())


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_value_in_a_line(folder: Path, data: st.DataObject) -> None:
    lines = (folder / "samples.jsonl").read_text().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[number])
    set_at(line, data.draw(st.sampled_from(sorted(places(line), key=str))), data.draw(WEIRD))
    lines[number] = json.dumps(line)
    survives(folder, "samples.jsonl", ("\n".join(lines) + "\n").encode())


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(["run.json", "samples.jsonl"]),
    start=st.floats(0, 1),
    length=st.integers(0, 200),
    put=st.binary(max_size=20),
)
def test_any_bytes_anywhere(folder: Path, name: str, start: float, length: int, put: bytes) -> None:
    whole = (folder / name).read_bytes()
    at = int(start * len(whole))
    survives(folder, name, whole[:at] + put + whole[at + length :])
