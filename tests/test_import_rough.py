"""What is said of files that are nearly right, of folders that are taken, and of logs of very many rows."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from importing import make_printed, write_imported
from test_import_command import LOG, V1, imported

from ncclbench.cli.app import run as run_command
from ncclbench.errors import RequestError
from ncclbench.report.contents import page_texts
from ncclbench.report.model import MOST_TABLED
from ncclbench.store.files import disk_error
from ncclbench.store.reader import load_run

ROW = "{size}    262144  float    sum     -1  50.00   20.97   20.97      0   52.00   20.16   20.16      0\n"


def reasons(document: dict[str, Any]) -> list[str]:
    return [problem["reason"] for entry in document["files"] for problem in entry["problems"]]


def test_json_with_no_number_in_its_last_result_does_not_end_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(V1.read_text())
    content["results"][-1]["out_of_place"]["bus_bw"] = float("nan")
    file = tmp_path / "nan.json"
    file.write_text(json.dumps(content))
    document = imported(capsys, file, "--out", tmp_path / "run")
    assert not [reason for reason in reasons(document) if "early" in reason or "damaged" in reason]
    assert document["files"][0]["rows_rejected"] == 1
    assert any("NaN" in reason or "nan" in reason for reason in reasons(document))


def test_an_unknown_version_of_json_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(V1.read_text()) | {"version": 99}
    file = tmp_path / "new.json"
    file.write_text(json.dumps(content))
    assert "version 99 of this JSON is not known: read like version 4" in reasons(
        imported(capsys, file, "--out", tmp_path / "run")
    )


def test_a_list_of_documents_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "list.json"
    file.write_text(f"[\n{V1.read_text()},\n{V1.read_text()}]\n")
    (entry,) = imported(capsys, file, "--out", tmp_path / "run")["files"]
    assert (entry["format"], len(entry["sections"])) == ("nccl-tests-json", 2)


def test_json_behind_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "both.log"
    file.write_text(LOG + V1.read_text())
    document = imported(capsys, file, "--out", tmp_path / "run")
    assert "JSON stands behind the text in it: import it from a file of its own" in reasons(document)


def test_a_row_of_thousands_of_digits_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.log"
    file.write_text(LOG.replace("# Out of bounds", ROW.format(size="9" * 5000) + "# Out of bounds"))
    (entry,) = imported(capsys, file, "--out", tmp_path / "run")["files"]
    assert (entry["rows_taken"], entry["rows_rejected"]) == (1, 1)


def test_foreign_csv_is_called_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("bytes,usec,gbps\n8,1.0,0.1\n16,1.0,0.2\n")
    document = imported(capsys, file, code=2)
    assert "looks like CSV, but its header does not name collective, size" in document["message"]


def test_equal_files_and_equal_tables_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, ranks = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "ranks.log"
    one.write_text(LOG)
    other.write_text(LOG)
    assert any(
        f"the same content as {one}" in reason
        for reason in reasons(imported(capsys, one, other, "--out", tmp_path / "run"))
    )
    rows = LOG.replace("     1048576 ", ROW.format(size=1048576) * 2 + "     1048576 ")
    ranks.write_text("".join(f"{rank}: {line}\n" for rank in range(2) for line in rows.splitlines()))
    document = imported(capsys, ranks, "--out", tmp_path / "ranks")
    assert len(document["files"][0]["sections"]) == 1
    assert any("ranks of one test printed it" in reason for reason in reasons(document))


@pytest.mark.parametrize("arguments", [["x.log", "x.log"], ["x.log", "--format", "nope"], ["nothing.log"]])
def test_the_document_of_a_failure_has_rows_and_files(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    document = imported(capsys, *arguments, code=2)
    assert document["rows"] == []
    assert isinstance(document["files"], list)


def test_a_folder_that_holds_an_import_is_not_to_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_imported(tmp_path / "run", [make_printed(8, 1.0)])
    file = tmp_path / "a.log"
    file.write_text(LOG)
    document = imported(capsys, file, "--out", folder, code=2)
    assert f"ncclbench report {folder}" in document["message"]
    assert "--resume" not in document["message"]
    assert document["run"] == str(folder)


def test_a_full_disk_is_told_by_what_is_there(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    folder = write_imported(tmp_path / "run", [make_printed(8, 1.0)])
    page = disk_error(folder / "report.html", full)
    assert str(page).endswith(f"the run is whole; its page is written by ncclbench report {folder}")
    assert page.run == folder
    samples = disk_error(folder / "samples.jsonl", full)
    assert "import again into another folder" in str(samples)
    elsewhere = disk_error(tmp_path / "page.html", full)
    assert (elsewhere.run, "resume" in str(elsewhere)) == (None, False)


def test_half_a_character_in_run_json_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_imported(tmp_path / "run", [make_printed(8, 1.0)], label="LABEL")
    meta = folder / "run.json"
    meta.write_text(meta.read_text().replace("LABEL", "a\\ud800b"))
    with pytest.raises(RequestError, match="half a character"):
        load_run(folder)
    assert run_command(["report", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_page_of_very_many_rows_shows_some_and_says_where_all_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = MOST_TABLED + 500
    rows = [make_printed(1024 + 4 * place, 1.0, wrong=int(place == number - 1)) for place in range(number)]
    folder = write_imported(tmp_path / "run", rows)
    assert run_command(["report", str(folder), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["rows"]) == number
    page = (folder / "report.html").read_text("utf-8")
    assert page.count("<tr") < number
    texts = list(page_texts(page))
    assert any("500 more rows left out here" in text and "summary.csv" in text for text in texts)
    assert "1 wrong elements" in texts  # the last one, which is never left out


@pytest.mark.parametrize("name", ["AllReduce", "ALL_REDUCE", "all-reduce", "all_reduce_perf"])
def test_a_collective_may_be_written_in_any_way(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.log"
    file.write_text(LOG)
    arguments = ["--op", name, "--require", f"{name.removesuffix('_perf').replace('-', '_')}>=1GB/s"]
    document = imported(capsys, file, "--out", tmp_path / "run", *arguments)
    assert document["requirements"][0]["answer"] == "pass"
