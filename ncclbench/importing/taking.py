"""Rows and tables of a file read line by line: taken, rejected or left out, and told of in one way."""

from __future__ import annotations

from ncclbench.importing.model import MOST_ROWS, MOST_SECTIONS, REJECTED, Reading, Section
from ncclbench.importing.nccl_layout import NotARow
from ncclbench.importing.nccl_section import Notes
from ncclbench.store.printed import Printed


class Taking:
    """What is taken of one file, within what a file may hold."""

    def __init__(self, reading: Reading, notes: Notes) -> None:
        self._reading = reading
        self._notes = notes
        self._rows_left = MOST_ROWS

    def has_room_for_table(self, number: int) -> bool:
        """Whether another table may begin on the line; told where not."""
        if len(self._reading.sections) < MOST_SECTIONS:
            return True
        self._notes.add(
            number, f"more than {MOST_SECTIONS:,} tables: those from here on are left out", "tables"
        )
        return False

    def reject(self, number: int, reason: NotARow) -> None:
        """A line that looks like a row and is none, or contradicts itself."""
        self._reading.rows_rejected += 1
        self._notes.add(number, f"{REJECTED}{reason}", "rows rejected")

    def take(self, number: int, row: Printed, section: Section) -> bool:
        """Put the line's row into its section; False, and told, where the file holds too many."""
        if not self._rows_left:
            self._notes.add(
                number, f"more than {MOST_ROWS:,} rows: those from here on are left out", "too many rows"
            )
            return False
        self._rows_left -= 1
        section.rows.append(row)
        section.row_lines += 1
        return True
