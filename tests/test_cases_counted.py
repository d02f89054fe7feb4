"""Of files given to --cases-from only those that were taken count as dumps."""

from __future__ import annotations

import shutil
from pathlib import Path

from cases_fixtures import make_job_dumps

from ncclbench.flight.selecting import read_job


def test_rubbish_and_copies_are_no_dumps(tmp_path: Path) -> None:
    make_job_dumps(tmp_path)
    shutil.copy(tmp_path / "rank_1", tmp_path / "rank_1_copy")
    (tmp_path / "rank_8").write_bytes(b"\x80\x04 nothing")
    (tmp_path / "rank_9").write_text('{"entries": 5}')
    job = read_job([tmp_path])
    assert sorted(name for name, _ in job.files) == ["rank_0", "rank_1", "rank_2", "rank_3"]
