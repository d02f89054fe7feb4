"""Reading the files in data/import, whole and changed, for tests of importers."""

from __future__ import annotations

from pathlib import Path

from ncclbench.importing import Reading, read_file
from ncclbench.store.printed import Printed

DATA = Path(__file__).parent / "data" / "import"
V1, V3 = DATA / "nccl-json-v1.json", DATA / "nccl-json-v3-per-iter.json"


def read(name: str, **options: str) -> Reading:
    return read_file(DATA / name, **options)


def rows_of(reading: Reading) -> list[Printed]:
    return [row for section in reading.sections for row in section.rows]


def edited(tmp_path: Path, source: Path, *changes: tuple[str, str]) -> Path:
    """A copy of a file with texts replaced, each of which must be there."""
    text = source.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    copy = tmp_path / source.name
    copy.write_text(text)
    return copy


def reasons(reading: Reading) -> str:
    return "\n".join(problem.reason for problem in reading.problems)
