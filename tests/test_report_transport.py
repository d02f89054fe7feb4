"""What is said of moved weights, in rows, on the terminal and on the page: who is faster, at what price."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import HOSTILE, SMALL, make_run
from report_reading import Page, content, drawing_of, figures_of, page_of
from transport_fixtures import NBYTES, make_results, make_times, make_transport, written

from ncclbench.cli.app import run as run_command
from ncclbench.report.build import render, report_of
from ncclbench.report.figures import ALWAYS
from ncclbench.report.panels import PANELS
from ncclbench.stats.transport import (
    Ratio,
    WayRow,
    fastest,
    latency_rows,
    over_epochs,
    transfer_faults,
    transfer_rows,
)
from ncclbench.stats.transport_words import against_text, headline, sentence, why_not_twice
from ncclbench.store.lines import decode_line, encode_line
from ncclbench.store.model import Run
from ncclbench.store.reader import load_run
from ncclbench.store.transfers import TransferFault, TransferResult
from ncclbench.terminal.transport import transport_lines
from ncclbench.units import format_time


def by_name(results: list[TransferResult]) -> dict[str, WayRow]:
    return {row.name: row for row in transfer_rows(results)}


def block(run: Run) -> dict[str, Any]:
    (found,) = content("transport", run)["blocks"]
    return dict(found)


# --- rows


def test_times_are_medians_of_the_epochs_medians_with_students_interval() -> None:
    results: list[TransferResult] = [
        make_times("broadcast", epoch, total_us=[time, 9 * time, time])
        for epoch, time in enumerate((10.0, 20.0, 40.0))
    ]
    short = [replace_times(each) for each in results]
    row = by_name(short)["broadcast on gloo"]
    assert row.total_us is not None
    assert row.total_us.median == 20.0
    # Mean of log2 is log2(20), its standard error 1/sqrt(3), t(0.975; 2) = 4.3027.
    assert row.total_us.low == pytest.approx(20 * 2 ** (-4.30265 / 3**0.5), rel=1e-4)
    assert (row.n, row.epochs, row.kind, row.status) == (9, 3, "two-sided", "ok")
    assert row.GBs == pytest.approx(NBYTES / 20e-6 / 1e9)


def replace_times(times: Any) -> Any:
    """Every array of a line as long as ``total_us``."""
    same = dict.fromkeys(("trainer_us", "frozen_us", "generator_us"), times.total_us)
    return make_times(times.way, times.epoch, total_us=times.total_us, **same)


def test_a_ratio_is_of_times_in_the_same_epochs() -> None:
    """Noise that both ways have in an epoch is not in it."""
    results: list[TransferResult] = []
    for epoch in range(6):
        shared = math.exp(epoch - 2.5)
        results += [make_times("broadcast", epoch, shared), make_times("cpu-write", epoch, 0.9 * shared)]
    against = by_name(results)["cpu-write"].against
    assert against is not None
    assert against.ratio == pytest.approx(0.3, rel=1e-3)
    assert against.low == pytest.approx(against.high, rel=1e-6)
    assert (against.base, against.verdict) == ("broadcast on gloo", "faster")
    assert by_name(results)["broadcast on gloo"].against is None


def test_few_epochs_are_unclear_and_two_have_no_interval() -> None:
    assert by_name(make_results(epochs=5))["cpu-write"].against.verdict == "unclear"  # type: ignore[union-attr]
    two = by_name(make_results(epochs=2))["cpu-write"]
    assert two.against is not None
    assert (two.against.low, two.against.p_holm, two.against.verdict) == (None, None, "unclear")
    assert two.total_us is not None
    assert two.total_us.low is None
    assert over_epochs([]) is None


def test_wrong_bytes_void_the_speed() -> None:
    results = make_results()
    results.append(make_times("cpu-write", 6, 0.1, wrong=3))
    row = by_name(results)["cpu-write"]
    assert (row.status, row.wrong, row.against) == ("wrong", 3, None)
    best = fastest(transfer_rows(results), "one-sided")
    assert best is not None
    assert best.way == "cpu-read"
    assert headline(transfer_rows(results), format_time) == "WRONG DATA by cpu-write"


def test_json_is_flat_and_complete() -> None:
    rows = [row.to_json() for row in transfer_rows(make_results())]
    json.dumps(rows, allow_nan=False)
    (write,) = [row for row in rows if row["way"] == "cpu-write"]
    assert write["arm"] is None
    assert write["total_ci_low_us"] < write["total_us"] < write["total_ci_high_us"]
    assert write["ci_low"] < write["ratio"] < write["ci_high"] < 1
    assert write["verdict"] == "faster"
    assert (write["torn"], write["steps"]) == (540, 1200)
    (missing,) = [row for row in rows if row["status"] == "unavailable"]
    assert (missing["way"], missing["reason"], missing["total_us"]) == (
        "nixl-write",
        "needs the package nixl",
        None,
    )
    assert {row.to_json()["nbytes"] for row in latency_rows(make_results())} == {8, 4096}


# --- words


def test_a_sentence_says_how_fast_and_whom_it_holds_up() -> None:
    rows = by_name(make_results())
    write, read = (sentence(rows[name], format_time) for name in ("cpu-write", "cpu-read"))
    assert write.startswith("one-sided cpu-write to 2 generators takes 30")
    assert "3x faster than broadcast on gloo (0.33x the time" in write
    assert "it holds the trainer up for 300 ms and a generator for 4 us" in write
    assert "sees them after 37" in write
    assert "it holds the trainer up for 2 us (its weights stay as they are for 29" in read
    broadcast = sentence(rows["broadcast on gloo"], format_time)
    assert "faster" not in broadcast
    assert "computes" not in broadcast
    assert headline(list(rows.values()), format_time).startswith(
        "one-sided cpu-read to 2 generators is 3.1x faster than broadcast on gloo and holds the trainer up "
        "for 2 us ("
    )


def test_ratios_are_written_so_that_they_say_something() -> None:
    def said(ratio: float, verdict: str) -> str:
        return against_text(Ratio("broadcast", ratio, ratio / 2, ratio * 2, 0.2, verdict))

    assert said(0.98, "faster") == "1.02x faster than broadcast (0.98x the time, 0.49x to 1.96x)"
    assert said(0.98, "unclear") == "0.98x the time of broadcast, 0.49x to 1.96x (unclear)"
    assert said(1.001, "slower").startswith("as fast as broadcast (1.00x")
    assert said(0.0009, "faster") == "1111x faster than broadcast (0.0009x the time, 0.00045x to 0.0018x)"
    assert said(12.34, "slower").startswith("12x slower than broadcast (12.34x")
    few = transfer_rows(make_results(epochs=1))
    assert "the time of broadcast on gloo (unclear), and holds" in headline(few, format_time)
    times_us = (0.0421, 0.9999, 999.6, 1_440e6)
    assert [format_time(us) for us in times_us] == [
        "42.1 ns",
        "1 us",
        "1 ms",
        "1440 s",
    ]


def test_it_says_honestly_why_a_write_is_not_twice_as_fast() -> None:
    fast = transfer_rows(make_results())
    assert why_not_twice(fast, 2) is None
    slow = [
        make_times(way, epoch, 1.0 if way == "broadcast" else 2.2)
        for epoch in range(6)
        for way in ("broadcast", "cpu-write")
    ]
    said = why_not_twice(transfer_rows(list(slow)), 2)
    assert said is not None
    assert "1.4x faster than broadcast on gloo, not twice as fast" in said
    assert "They have 2 cores between them here." in said
    assert why_not_twice(transfer_rows([make_times("cpu-write")]), 2) is None
    assert said in block(make_transport(results=list(slow)))["why_not"]


def test_the_terminal_has_every_way_and_says_that_they_are_not_the_same() -> None:
    results = make_results()
    lines = transport_lines(transfer_rows(results), latency_rows(results), transfer_faults(results))
    assert lines[0].startswith("# 1G of weights in 83 tensors to 2 generators; medians over 6 epochs; ")
    assert lines[0].endswith("; no byte wrong")
    assert max(map(len, lines[1:])) <= 80
    (write,) = [line for line in lines if line.startswith("  cpu-write  ")][:1]
    assert write.split()[-1] == "45%"
    (heading,) = [line for line in lines if line.startswith("# one-sided")]
    assert lines.index(write) > lines.index(heading)
    assert "# nixl-write: not here: needs the package nixl" in lines
    assert "  cpu-write, peer killed: an error after 4 ms: process 12 has ended" in lines
    assert "are not the same operation" in " ".join(line.removeprefix("# ") for line in lines)
    only = [row for row in transfer_rows(results) if not row.is_one_sided]
    assert not any("not the same operation" in line for line in transport_lines(only, [], []))


# --- on the page


def test_page_has_words_first_and_then_the_numbers() -> None:
    found = block(make_transport())
    assert found["tone"] == "good"
    assert found["headline"].startswith(
        "One-sided cpu-read to 2 generators is 3.1x faster than broadcast on gloo"
    )
    assert found["place"] == "1G of weights in 83 tensors, 1 trainer and 2 generators on 1 host"
    assert len(found["sentences"]) == 4
    assert len(found["words"]) == 3
    assert found["missing"] == ["nixl-write: needs the package nixl"]
    assert [line["name"] for line in found["rows"]][:2] == ["broadcast on gloo", "send-recv on gloo"]
    assert [(line["seen"], line["bad"]) for line in found["faults"]] == [("an error", False), ("HUNG", True)]
    page = page_of(make_transport())
    assert {name for name in page.ids() if name in PANELS} == {"transport", "environment", "howto"}
    assert "are not the same operation" in page.text
    # The words that the table needs, and no others.
    assert "Held up: the trainer, or a generator, can do nothing else." in page.text
    assert "busbw" not in page.text


def test_bars_of_each_quantity_are_medians_with_intervals() -> None:
    run = make_transport()
    plots = figures_of(run)["ways-0"].plots[ALWAYS]
    assert len(plots) == 5
    two, one = plots["until every generator holds every byte"].data
    assert (two["name"], one["name"]) == ("two-sided", "one-sided")
    row = by_name(list(run.results))["cpu-write"]  # type: ignore[arg-type]
    assert row.total_us is not None
    assert row.total_us.high is not None
    at = one["y"].index("cpu-write")
    assert one["x"][at] == pytest.approx(row.total_us.median, rel=1e-4)
    assert one["error_x"]["array"][at] == pytest.approx(row.total_us.high - row.total_us.median, rel=1e-3)
    # Lengths can be compared where they can be seen; a microsecond beside a second needs another axis.
    assert plots["until every generator holds every byte"].layout["xaxis"]["range"][0] == 0
    assert plots["the trainer is held up"].layout["xaxis"]["type"] == "log"
    (stale,) = plots["a computing generator sees old weights"].data
    assert stale["name"] == "one-sided"


def test_wrong_data_and_early_ends_come_first() -> None:
    wrong = block(make_transport(results=[make_times("cpu-write", wrong=5)]))
    assert (wrong["tone"], wrong["headline"]) == ("bad", "WRONG DATA by cpu-write")
    assert wrong["rows"][0]["is_wrong"]
    ended = block(make_transport(results=[], status="interrupted", message="ended by SIGINT"))
    assert (ended["tone"], ended["headline"]) == ("warn", "No weights were moved")
    assert ended["ending"] == "interrupted: ended by SIGINT"
    assert ended["figures"] == []


def test_zeros_and_single_epochs_are_drawn() -> None:
    lone = make_times(
        "cpu-read", total_us=[0.0], trainer_us=[0.0], frozen_us=[0.0], generator_us=[0.0], stale_us=[0.0]
    )
    page_of(make_transport(results=[lone, make_times("broadcast")]))
    assert page_of(make_run(sizes=SMALL), make_transport()).ids() >= {"transport", "verdict"}
    assert PANELS["transport"].build(report_of([make_run(sizes=SMALL)])) is None


def test_hostile_words_stay_text() -> None:
    fault = TransferFault(way=HOSTILE, fault="timeout", outcome="raised", said=HOSTILE, seconds=1.0)
    results: list[TransferResult] = [make_times(HOSTILE, epoch) for epoch in range(3)]
    results += [replace_arm(epoch) for epoch in range(3)]
    html = render(
        report_of(
            [make_transport(results=[*results, fault], label=HOSTILE, message=HOSTILE, status="failed")]
        )
    )
    page = Page(html)
    assert "<script>alert('1')</script>" in page.text
    assert not page.tagged("img")
    assert "<script" not in json.dumps(drawing_of(html)["figures"]["ways-0"]["plots"])


def replace_arm(epoch: int) -> TransferResult:
    return make_times("broadcast", epoch, arm=HOSTILE)


# --- the folder


def test_lines_survive_the_disk_and_the_report_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_transport()
    folder = written(tmp_path / "run", run)
    loaded = load_run(folder)
    assert (loaded.results, loaded.problems) == (run.results, [])
    assert run_command(["report", str(folder), "--json"]) == 0
    capsys.readouterr()
    assert "is 3.1x faster than broadcast" in Page((folder / "report.html").read_text("utf-8")).text
    other = written(tmp_path / "other", replace(run, results=[]))
    assert run_command(["compare", str(folder), str(other)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trainer_us": [1.0]}, "not all its times are of the same repetitions"),
        ({"steps": 2, "torn": 3}, "3 of 2 steps saw torn weights"),
        ({"nbytes": 5}, "83 tensors have 5 bytes"),
        ({"wrong": 2 * NBYTES + 1}, "bytes are wrong of"),
    ],
)
def test_lines_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode_line(encode_line(make_times("cpu-write", **changes)))


def test_a_damaged_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", make_transport())
    samples = folder / "samples.jsonl"
    samples.write_text(samples.read_text().replace('"generators":2', '"generators":-2', 1))
    assert run_command(["report", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "samples.jsonl line 2 is damaged" in err
