"""Formats other than nccl-tests' text: what each printed figure becomes, and what their writers do wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from import_reading import DATA, V1, V3, edited, read, reasons, rows_of

from ncclbench.errors import RequestError
from ncclbench.importing import IMPORTERS, read_file
from ncclbench.store.printed import Printed


@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("nccl-json-v1.json", "nccl-tests-json"),
        ("nccl-json-v3-per-iter.json", "nccl-tests-json"),
        ("rccl-lines.json", "rccl-tests-json"),
        ("rccl-list.json", "rccl-tests-json"),
        ("rccl.csv", "rccl-tests-csv"),
        ("rccl-shifted.csv", "rccl-tests-csv"),
        ("rccl-gpus.csv", "rccl-tests-csv"),
        ("param.txt", "param"),
        ("param-first.txt", "param"),
        ("osu-collectives.txt", "osu"),
        ("osu-pt2pt.txt", "osu"),
        ("osu-xccl.txt", "osu"),
    ],
)
def test_each_format_is_recognised_by_what_is_in_it(file: str, format: str, tmp_path: Path) -> None:
    unnamed = tmp_path / "log"
    unnamed.write_bytes((DATA / file).read_bytes())
    assert read_file(unnamed).format == format
    sure = [name for name, entry in IMPORTERS.items() if entry.recognises(unnamed.read_text(), "") > 90]
    assert sure == [format]


# nccl-tests -J.


def test_json_of_two_nodes() -> None:
    reading = read("nccl-json-v1.json")
    (section,) = reading.sections
    assert (reading.rows_taken, reading.rows_rejected, reading.problems) == (3, 0, [])
    assert (section.nccl, section.nranks, len(section.devices)) == ("2.28.9", 16, 16)
    assert (section.devices[9].host, section.devices[9].device) == ("node1", 1)
    # The average stands under a misspelt key in this version.
    assert (section.average_fits, section.missing) == (True, [])
    out_of_place, in_place = section.rows[-2:]
    assert (out_of_place.op, out_of_place.op_from) == ("all_reduce", "text")
    assert (out_of_place.nbytes, out_of_place.count, out_of_place.dtype) == (1048576, 262144, "float32")
    assert (out_of_place.redop, out_of_place.root, out_of_place.mode) == ("sum", None, "back-to-back")
    assert (out_of_place.in_place, out_of_place.time_us, out_of_place.wrong) == (False, 60.5, 0)
    assert out_of_place.busbw_GBs == pytest.approx(1048576 / 60.5 / 1e3 * 30 / 16, rel=1e-6)
    assert (in_place.in_place, in_place.time_us, in_place.nranks_from) == (True, 61.25, "header")


def test_of_the_environment_only_what_matters_is_kept_and_no_secret() -> None:
    reading = read("nccl-json-v1.json")
    text = repr(reading)
    assert reading.sections[0].environment["NCCL_IB_HCA"] == "mlx5"
    for secret in ("abc123", "hf_abcdefgh", "AWS_SECRET", "/home/someone"):
        assert secret not in text


def test_json_of_one_process_with_many_gpus_lists_one_and_has_all_ranks() -> None:
    reading = read("nccl-json-v3-per-iter.json")
    (section,) = reading.sections
    assert (section.nranks, len(section.devices)) == (8, 1)
    assert {row.op for row in section.rows} == {"all_to_all"}
    assert [row.wrong for row in section.rows if row.in_place] == [None, None, None]


def test_of_single_iterations_the_summary_is_kept() -> None:
    row = rows_of(read("nccl-json-v3-per-iter.json"))[2]
    assert (row.min_us, row.p50_us, row.p99_us, row.max_us) == (90.0, 99.0, 140.0, 150.0)


def test_size_0_is_no_operation() -> None:
    row = rows_of(read("nccl-json-v3-per-iter.json"))[0]
    assert (row.nbytes, row.time_us) == (0, None)
    assert "no operation" in str(row.reason)


def test_json_of_a_killed_test_gives_its_whole_results(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    text = V1.read_text()
    cut.write_text(text[: text.index('"size":1048576') + 120])
    reading = read_file(cut)
    assert reading.rows_taken == 2
    assert "ends early" in reasons(reading)
    assert {"end", "footer"} <= set(reading.sections[0].missing)
    assert reading.sections[0].nranks == 16


@pytest.mark.parametrize("end", ['"env":[', '"config":{'])
def test_json_that_ends_before_its_results_is_refused(tmp_path: Path, end: str) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(V1.read_text().partition(end)[0] + end)
    with pytest.raises(RequestError, match="ends before its first result"):
        read_file(cut)


def test_json_that_ends_before_its_first_result_has_none(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(V1.read_text().partition('"results":[')[0] + '"results":[{"size":8,')
    reading = read_file(cut)
    assert (reading.rows_taken, reading.sections[0].nranks) == (0, 16)


def test_infinity_without_quotes_costs_its_row_only(tmp_path: Path) -> None:
    file = edited(
        tmp_path, V1, ('"alg_bw":1.638400', '"alg_bw":inf'), ('"NCCL_DEBUG=WARN"', '"NCCL_DEBUG=-inf"')
    )
    reading = read_file(file)
    assert reading.rows_taken + reading.rows_rejected == 3
    assert {row.nbytes for row in rows_of(reading)} >= {8, 1048576}
    assert reading.sections[0].environment["NCCL_DEBUG"] == "-inf"


def test_numbers_as_strings_and_nan(tmp_path: Path) -> None:
    file = edited(
        tmp_path,
        V1,
        ('"size":8,', '"size":"8",'),
        ('"time":60.500000', '"time":"nan"'),
        ('"count":16384,', '"count":16384,"count":16384,'),
    )
    reading = read_file(file)
    assert {row.nbytes for row in rows_of(reading)} == {8, 65536}
    assert (reading.rows_taken, reading.rows_rejected) == (2, 1)


def test_a_result_that_contradicts_itself_is_rejected(tmp_path: Path) -> None:
    reading = read_file(edited(tmp_path, V1, ('"time":60.500000', '"time":6.050000')))
    assert (reading.rows_taken, reading.rows_rejected) == (2, 1)
    assert [problem.line for problem in reading.problems if "rejected" in problem.reason] == [3]
    assert reading.sections[0].average_fits is False


def test_ranks_by_the_figures_where_devices_say_otherwise(tmp_path: Path) -> None:
    document = json.loads(V1.read_text())
    document["config"]["devices"] = document["config"]["devices"][:8]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    (section,) = read_file(file).sections
    assert (section.nranks, section.rows[0].nranks_from) == (16, "derived")


def test_cpu_time_is_not_taken_for_the_time_of_an_operation(tmp_path: Path) -> None:
    file = edited(tmp_path, V1, ('"time":', '"cpu_time":'), ("60.500000", "3.500000"))
    row = next(row for row in rows_of(read_file(file)) if row.nbytes == 1048576 and not row.in_place)
    assert row.time_us == pytest.approx(60.5, rel=1e-4)
    assert "time_us" in row.derived


def test_graphs_and_blocking_change_the_mode(tmp_path: Path) -> None:
    graph = read_file(edited(tmp_path, V1, ('"graph":0', '"graph":1')))
    assert {row.mode for row in rows_of(graph)} == {"graph"}
    blocking = read_file(
        edited(tmp_path, V1, ('"blocking_collectives":"false"', '"blocking_collectives":"true"'))
    )
    assert {row.mode for row in rows_of(blocking)} == {None}


def test_two_documents_in_one_file_are_two_sections(tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text(V1.read_text() + "\n" + V3.read_text())
    reading = read_file(both)
    assert [section.rows[0].op for section in reading.sections] == ["all_reduce", "all_to_all"]
    assert [section.line for section in reading.sections] == [1, 2]


def test_a_cut_document_does_not_spoil_a_whole_one(tmp_path: Path) -> None:
    both = tmp_path / "both.json"
    both.write_text(V1.read_text() + "\n" + V3.read_text()[:200])
    reading = read_file(both)
    assert reading.rows_taken == 3
    assert "ends before its first result" in reasons(reading)


def test_a_result_of_another_shape_costs_itself_only(tmp_path: Path) -> None:
    reading = read_file(edited(tmp_path, V1, ('"in_place":{"time":41.5', '"in_place":3,"x":{"time":41.5')))
    assert {row.nbytes for row in rows_of(reading)} == {8, 1048576}
    assert reading.rows_rejected == 1
    assert "end" not in reading.sections[0].missing


def test_an_error_text_is_told(tmp_path: Path) -> None:
    reading = read_file(edited(tmp_path, V1, ('"errors":[""]', '"errors":["remote process exited"]')))
    assert reading.sections[0].failure == "remote process exited"


@pytest.mark.parametrize("start", ["[", '{"nccl_version":1,"x":'])
def test_deep_nesting_is_refused_in_a_line(tmp_path: Path, start: str) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text(start + "[" * 200_000)
    with pytest.raises(RequestError) as caught:
        read_file(deep)
    assert "\n" not in str(caught.value)


def test_deep_nesting_in_place_of_results_is_none(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text('{"nccl_version":1,"results":' + "[" * 200_000)
    assert rows_of(read_file(deep)) == []


# rccl-tests -x.


RECORDS = ("rccl-lines.json", "rccl-list.json", "rccl.csv", "rccl-shifted.csv", "rccl-gpus.csv")


@pytest.mark.parametrize("file", RECORDS)
def test_rccl_records(file: str) -> None:
    reading = read(file)
    (section,) = reading.sections
    assert (section.tool, section.nranks, reading.rows_rejected) == ("rccl-tests", 8, 0)
    last = section.rows[3]
    assert (last.op, last.nbytes, last.in_place, last.time_us) == ("all_reduce", 1048576, True, 76.0)
    assert (last.dtype, last.redop, last.nranks_from) == ("float32", "sum", "header")
    assert last.wrong == (None if file == "rccl-gpus.csv" else 0)


def test_a_header_that_lacks_a_column_is_told() -> None:
    assert "lacks `nodes`" in reasons(read("rccl-shifted.csv"))


def test_records_written_again_by_something_else(tmp_path: Path) -> None:
    file = tmp_path / "pretty.json"
    file.write_text(json.dumps(json.loads((DATA / "rccl-list.json").read_text()), indent=2))
    assert rows_of(read_file(file)) == [
        row_with_line(row, number) for number, row in enumerate(rows_of(read("rccl-list.json")), start=1)
    ]


def row_with_line(row: Printed, line: int) -> Printed:
    return msgspec.structs.replace(row, line=line)


def test_a_torn_record_and_infinity_cost_their_lines(tmp_path: Path) -> None:
    text = (DATA / "rccl-list.json").read_text().splitlines()
    text[3] = text[3].replace('"algBw":13.981013', '"algBw":inf')
    text[-2] = text[-2][:60]
    file = tmp_path / "torn.json"
    file.write_text("\n".join(text[:-1]))
    reading = read_file(file)
    assert reading.rows_taken + reading.rows_rejected == 8
    assert reading.rows_rejected in (1, 2)
    assert "cut or torn" in reasons(reading)


# Files that are none.


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b\x08\x00rest", "gunzip"),
        (b"PK\x03\x04rest", "unzip"),
        (b"BZh9rest", "bunzip2"),
        (b"\x28\xb5\x2f\xfdrest", "unzstd"),
        (b"x" * 257 + b"ustar", "tar xf"),
        (b"hello\n", "no format that is known"),
        (b"\x00" * 5000, "no format that is known"),
        (b"42", "no format that is known"),
        (b'"text"', "no format that is known"),
    ],
)
def test_what_is_no_log_is_refused_in_a_line(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(RequestError, match=said) as caught:
        read_file(file)
    assert "\n" not in str(caught.value)


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "none", tmp_path / "loop"):
        with pytest.raises(RequestError):
            read_file(place)


def test_a_link_to_a_log_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(V1)
    assert read_file(tmp_path / "link").rows_taken == 3


def test_a_file_beyond_all_logs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as sparse:
        sparse.truncate(5 << 30)
    with pytest.raises(RequestError, match="4 GiB"):
        read_file(file)


def test_a_format_by_name_is_not_second_guessed() -> None:
    with pytest.raises(RequestError, match="is no JSON of nccl-tests"):
        read("osu-pt2pt.txt", format="nccl-tests-json")
    assert rows_of(read("osu-pt2pt.txt", format="param")) == []
