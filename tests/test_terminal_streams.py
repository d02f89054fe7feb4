"""Progress on terminals and in pipes, and streams that are closed, full or gone."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ncclbench.errors import MeasurementError
from ncclbench.terminal import progress
from ncclbench.terminal.streams import coloured, one_line, show, write


class TestProgress:
    def test_piped_it_is_one_line_per_epoch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(float(second) for second in range(100))
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        stream = io.StringIO()
        lines = progress.start_progress(6.0, 3, stream)
        for epoch in range(3):
            for _ in range(2):
                lines.advance(1.0, epoch, "all_reduce")
        lines.close()
        told = stream.getvalue().splitlines()
        assert [line.split(" after")[0] for line in told] == [f"epoch {n} of 3 done" for n in (1, 2, 3)]
        # A third is done after 3 s by this clock: as much again, twice, is left.
        assert told[0] == "epoch 1 of 3 done after 3.0 s, about 6.0 s left"
        assert "left" not in told[2]

    def test_a_long_epoch_says_where_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(range(0, 10_000, 20))
        monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
        stream = io.StringIO()
        lines = progress.start_progress(100.0, 1, stream)
        for _ in range(4):
            lines.advance(1.0, 0, "broadcast int8 1G")
        assert stream.getvalue().startswith("epoch 1 of 1, broadcast int8 1G after ")

    def test_an_epoch_cut_short_is_not_called_done(self) -> None:
        stream = io.StringIO()
        lines = progress.start_progress(4.0, 1, stream)
        lines.advance(1.0, 0, "all_reduce")
        lines.close()
        assert stream.getvalue() == ""

    def test_what_will_not_be_measured_is_not_waited_for(self) -> None:
        stream = io.StringIO()
        lines = progress.start_progress(4.0, 1, stream)
        lines.drop(3.0)
        lines.advance(1.0, 0, "all_reduce")
        lines.close()
        assert stream.getvalue().startswith("epoch 1 of 1 done")


SCRIPT = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_terminal import ENVIRONMENT, FOLDER, TerminalListener, measure, plan_of, show_conclusion
plan = plan_of()
listener = TerminalListener()
listener.started(FOLDER, plan, ENVIRONMENT, [])
measure(listener, plan)
threads = threading.active_count()
listener.ended()
show_conclusion([], [], FOLDER / "report.html")
print("threads", threads)
"""


def on_a_terminal(variables: dict[str, str], stdout_too: bool) -> tuple[str, str]:
    """The listener in a process with a terminal: what that shows, and what a piped stdout got."""
    leader, follower = pty.openpty()
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=follower if stdout_too else subprocess.PIPE,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", **variables},
        text=True,
    )
    os.close(follower)
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                chunk = os.read(leader, 4096)
            except OSError:  # Linux says the last writer has gone with an error, not with nothing
                return
            if not chunk:
                return
            shown.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    piped, _ = process.communicate(timeout=60)
    reader.join(timeout=60)
    os.close(leader)
    assert process.returncode == 0, shown.decode()
    return shown.decode(), piped or ""


class TestOnATerminal:
    def test_a_bar_runs_without_a_thread_and_leaves_the_rows_whole(self) -> None:
        shown, _ = on_a_terminal({}, stdout_too=True)
        assert "epoch 2/2 all_reduce float32 2K" in shown
        assert "threads 1" in shown
        # Each row begins on a line of its own: the bar has been taken away before.
        assert re.search(r"(\n|\x1b\[2K)\r? +1024 +256 +float32", shown)
        assert shown.rstrip().endswith("threads 1")

    def test_rows_go_to_a_piped_standard_output_while_the_bar_runs(self) -> None:
        shown, piped = on_a_terminal({}, stdout_too=False)
        rows = [line.split() for line in piped.splitlines() if not line.startswith("#")]
        assert [row[0] for row in rows][:2] == ["1024", "2048"]
        assert "\x1b" not in piped
        assert "epoch 2/2" in shown

    def test_no_color_is_respected(self) -> None:
        colour = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")
        assert colour.search(on_a_terminal({}, stdout_too=True)[0])
        assert not colour.search(on_a_terminal({"NO_COLOR": "1"}, stdout_too=True)[0])

    def test_a_dumb_terminal_gets_plain_lines(self) -> None:
        shown, _ = on_a_terminal({"TERM": "dumb"}, stdout_too=True)
        assert "\x1b" not in shown
        assert "epoch 2 of 2 done" in shown


class TestStreams:
    def test_control_characters_of_foreign_texts_are_escaped(self) -> None:
        assert one_line("a\nb\tc \x1b[31mred\x00 größe\udc80") == "a b c \\x1b[31mred\\x00 größe\\udc80"

    def test_a_reader_that_has_gone_ends_nothing(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as stream:
            write("a line\n", stream)
            write("another\n", stream)

    def test_a_full_disk_is_said_or_borne_as_the_caller_needs(self) -> None:
        with open("/dev/full", "w") as stream, pytest.raises(MeasurementError, match="No space left"):
            write("a line\n", stream)
        with open("/dev/full", "w") as stream:
            show("a line\n", stream)

    def test_a_stream_that_is_closed_from_the_start_takes_everything(self) -> None:
        write("a line\n", None)
        assert coloured("text", "red", None) == "text"
