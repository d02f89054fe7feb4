"""Searches on a disk that is full: the answer is given all the same, and the first word counts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from searching import search
from tools import require_mount

from ncclbench.store.reader import load_run

QUICK = ("--quick", "--nproc-per-node", "2")


def test_where_only_the_page_does_not_fit_the_answer_is_given(tmp_path: Path) -> None:
    with require_mount(tmp_path / "small", kilobytes=200) as small:
        done = search("matrix", *QUICK, "--json", "--out", small / "run")
        assert done.code == 3
        answer = done.document
        assert len([link for link in answer["links"] if link["bandwidth_GBs"]]) == 2
        assert answer["message"].startswith(f"disk full at {small / 'run' / 'report.html'}")
        assert answer["report"] is None
        assert load_run(small / "run").meta["status"] == "complete"


def test_a_disk_that_is_full_from_the_start_is_said(tmp_path: Path) -> None:
    with require_mount(tmp_path / "small", kilobytes=100) as small:
        (small / "run").mkdir()
        with suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 1024):
                pass
        # Room for the lock, and for no more.
        os.truncate(small / "filler", (small / "filler").stat().st_size - os.sysconf("SC_PAGESIZE"))
        done = search("suspects", *QUICK, "--drain-hosts", "--out", small / "run")
        assert done.code == 3, done.err
        assert f"disk full at {small / 'run'}" in done.err
        assert done.out == ""
