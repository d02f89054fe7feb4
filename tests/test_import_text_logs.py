"""The public logs beside the checkout: their index value by value, and no wrong number when damaged."""

from __future__ import annotations

import csv
import resource
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from import_mutating import damaged_bytes

from ncclbench.errors import RequestError
from ncclbench.importing import read_file
from ncclbench.importing.assemble import assemble
from ncclbench.importing.model import Reading
from ncclbench.importing.nccl_tests import read, recognises
from ncclbench.store.printed import Printed

LOGS = Path(__file__).parents[2] / "shared" / "data" / "nccl-tests"
INDEX = LOGS / "index.tsv"
ENTRIES = list(csv.DictReader(INDEX.open(), delimiter="\t")) if INDEX.exists() else []
WITHOUT_ROWS = ("18_", "27_", "29_")

pytestmark = pytest.mark.skipif(not ENTRIES, reason="the public logs are not beside this checkout")


def _op(entry: dict[str, str]) -> str:
    return {"alltoall": "all_to_all"}.get(entry["op"], entry["op"])


def _rows(reading: Reading) -> list[Printed]:
    return [row for section in reading.sections for row in section.rows]


def _largest(rows: list[Printed], *, in_place: bool) -> Printed:
    nbytes = max(row.nbytes for row in rows)
    return next(row for row in rows if row.nbytes == nbytes and row.in_place is in_place)


def _wrong(row: Printed) -> str:
    """As the log prints it."""
    if row.max_error is not None:
        return f"{row.max_error:.0e}"
    return "N/A" if row.wrong is None else f"{row.wrong:g}"


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"][:30] for entry in ENTRIES])
def test_log_imports_as_its_index_says(entry: dict[str, str]) -> None:
    reading = read(LOGS / entry["file"], _op(entry))
    assert reading.rows_taken == int(entry["data_rows"])
    assert reading.rows_rejected == int(entry["rejected_rows"])
    assert len(reading.sections) == 1
    section = reading.sections[0]
    printed = entry["avg_bus_bandwidth_line"].split()
    if printed and printed[0] != "XXX.XX":
        assert section.average_GBs == float(printed[0])
    else:
        assert section.average_GBs is None
    rows = section.rows
    if not rows:
        assert not entry["largest_size_B"]
        return
    for in_place, name in ((False, "oop"), (True, "ip")):
        row = _largest(rows, in_place=in_place)
        assert (row.nbytes, row.count) == (int(entry["largest_size_B"]), int(entry["largest_count"]))
        assert row.time_us == float(entry[f"{name}_time_us"])
        assert row.algbw_GBs == float(entry[f"{name}_algbw_GBs"])
        assert row.busbw_GBs == float(entry[f"{name}_busbw_GBs"])
        assert _wrong(row) == entry[f"{name}_wrong"]
        assert (row.redop or "") == entry["redop"].replace("none", "")
        assert ("" if row.root is None else str(row.root)) == entry["root"].replace("-1", "")
    assert {row.op for row in rows} == {_op(entry)}
    assert {row.nranks for row in rows} == {int(entry["ranks"])}
    if printed and entry["avg_line_equals_mean"]:
        assert section.average_fits is (entry["avg_line_equals_mean"] == "yes")


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"][:30] for entry in ENTRIES])
def test_without_op_it_is_right_or_unknown(entry: dict[str, str]) -> None:
    file = LOGS / entry["file"]
    assert recognises(file.read_text()[: 1 << 16], file.name) > 0
    reading = read(file)
    assert reading.rows_taken == int(entry["data_rows"])
    for row in _rows(reading):
        assert row.op in (_op(entry), None)
        assert (row.op is None) == (row.op_from is None)
        assert row.nranks == int(entry["ranks"])


def test_logs_without_rows_give_none() -> None:
    without = [entry["file"] for entry in ENTRIES if entry["file"].startswith(WITHOUT_ROWS)]
    assert len(without) == len(WITHOUT_ROWS)
    for name in without:
        assert not _rows(read(LOGS / name))


def test_most_ops_are_known_without_being_told() -> None:
    with_rows = [entry for entry in ENTRIES if int(entry["data_rows"])]
    known = [entry for entry in with_rows if _rows(read(LOGS / entry["file"]))[0].op is not None]
    # Nothing in one tells all_gather from all_to_all, and three were typed again with other counts.
    assert len(known) >= len(with_rows) - 5


def test_a_page_that_says_other_ranks_than_its_numbers_is_named() -> None:
    reading = read(next(LOGS.glob("11_*")))
    assert {row.nranks for row in _rows(reading)} == {96}
    assert any("64 ranks" in problem.reason and "96" in problem.reason for problem in reading.problems)


def test_counts_typed_wrong_are_kept_and_named() -> None:
    for name in ("62_*", "63_*", "65_*"):
        reading = read(next(LOGS.glob(name)), "all_to_all")
        assert reading.rows_taken == 2
        assert any("count" in problem.reason and problem.line for problem in reading.problems)


def test_a_file_name_is_a_hint_and_no_evidence() -> None:
    reading = read(next(LOGS.glob("62_*")))
    assert {row.op for row in _rows(reading)} == {None}
    assert any("only a hint" in problem.reason for problem in reading.problems)


def test_an_option_that_contradicts_is_not_believed() -> None:
    reading = read(next(LOGS.glob("08_*")), "all_gather")
    assert {row.op for row in _rows(reading)} != {"all_gather"}
    assert any("--op says all_gather" in problem.reason for problem in reading.problems)
    told = read(next(LOGS.glob("23_*")), "all_reduce")
    assert {(row.op, row.op_from) for row in _rows(told)} == {("all_gather", "text")}
    assert any("the text was believed" in problem.reason for problem in told.problems)


Value = tuple[object, ...]
COMPARED = (
    "op", "nranks", "redop", "root", "in_place", "dtype", "count", "time_us", "algbw_GBs", "busbw_GBs",
    "wrong",
)  # fmt: skip


def _values(reading: Reading) -> list[tuple[Printed, Value]]:
    return [(row, tuple(getattr(row, name) for name in COMPARED)) for row in _rows(reading)]


def _is_known(value: Value, known: list[Value]) -> bool:
    """Whether the original has that value; what a damaged log does not tell is None in it."""
    return value in known or any(
        all(a is None or a == b for a, b in zip(value, each, strict=True)) for each in known
    )


@dataclass
class Damage:
    """Values of damaged logs: how many, those changed and named, those changed in silence; seconds."""

    values: int = 0
    named: int = 0
    silent: list[str] = field(default_factory=list)
    seconds: float = 0.0


def _damage(tmp_path: Path, count: int) -> Damage:
    """What becomes of that many damaged logs on the way that every file takes."""
    originals = []
    for entry in ENTRIES:
        known = defaultdict(list)
        for row, value in _values(read_file(LOGS / entry["file"])):
            known[row.nbytes].append(value)
        originals.append(((LOGS / entry["file"]).read_text(), known))
    file = tmp_path / "damaged.txt"
    found = Damage()
    for seed in range(count):
        text, known = originals[seed % len(originals)]
        names, content = damaged_bytes(seed, text)
        file.write_bytes(content)
        started = time.process_time()
        try:
            reading = read_file(file)
        except RequestError:
            continue
        finally:
            found.seconds += time.process_time() - started
        assembled = assemble([reading])
        assert len(assembled.rows) == len(_rows(reading))
        lines = {problem.line for problem in reading.problems}
        doubted = any(section.average_fits is False for section in reading.sections) or any(
            "footer counts" in problem.reason for problem in reading.problems
        )
        for row, value in _values(reading):
            found.values += 1
            if not _is_known(value, known.get(row.nbytes, [])):
                if row.line in lines or doubted:
                    found.named += 1
                else:
                    found.silent.append(f"{seed} {names} line {row.line}: {value}")
    return found


def test_damaged_logs_give_no_wrong_numbers_in_silence(tmp_path: Path) -> None:
    found = _damage(tmp_path, 600)
    assert found.values > 8_000
    assert found.named > 20
    # What is left has changed within its rounding, or is a time whose bandwidth is printed as 0.00.
    assert len(found.silent) <= found.values / 3_000, found.silent


@pytest.mark.full
@pytest.mark.timeout(900)
def test_ten_thousand_damaged_logs_in_one_process(tmp_path: Path) -> None:
    before_mib = _peak_mib()
    found = _damage(tmp_path, 10_000)
    assert found.values > 150_000
    assert found.named > 300
    assert len(found.silent) <= found.values / 3_000, found.silent
    assert found.seconds < 300
    assert _peak_mib() - before_mib < 100


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
