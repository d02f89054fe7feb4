"""How far a run is: a bar on a terminal, a line per epoch where nobody redraws lines.

Nothing here runs by itself (no thread, no timer): a measurement must not be disturbed by its display.
"""

from __future__ import annotations

import time
from typing import Protocol, TextIO

from ncclbench.terminal.streams import is_terminal, show
from ncclbench.units import format_seconds

# An epoch that takes longer says so in between.
_LINE_EVERY_S = 30.0


class Progress(Protocol):
    """What the listener tells of the work done, in any unit, out of a total."""

    def advance(self, work: float, epoch: int, case: str) -> None:
        """So much more is done, in an epoch counted from 0, by a case."""

    def drop(self, work: float) -> None:
        """So much of the total will not be done."""

    def pause(self) -> None:
        """Leave the terminal to other lines until ``resume``."""

    def resume(self) -> None:
        """Show again."""

    def close(self) -> None:
        """Nothing more will be told."""


def start_progress(total: float, epochs: int | None, stream: TextIO | None) -> Progress:
    """A bar where ``stream`` is a terminal, else lines on it; no ``epochs`` where their number is open."""
    if stream is not None and is_terminal(stream):
        return Bar(total, epochs, stream)
    return Lines(total, epochs, stream)


class Bar:
    """A bar with the time left, drawn only when told."""

    def __init__(self, total: float, epochs: int | None, stream: TextIO) -> None:
        from rich import progress  # here, because a piped run needs none of it
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("left"),
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._epochs = epochs
        self._total = total
        self._task = self._bar.add_task("starting", total=total)
        self._bar.start()

    def advance(self, work: float, epoch: int, case: str) -> None:
        of = "" if self._epochs is None else f"/{self._epochs}"
        text = f"epoch {epoch + 1}{of} {case}"
        self._bar.update(self._task, advance=work, description=text, refresh=True)

    def drop(self, work: float) -> None:
        self._total -= work
        self._bar.update(self._task, total=self._total)

    def pause(self) -> None:
        self._bar.stop()

    def resume(self) -> None:
        self._bar.start()

    def close(self) -> None:
        self._bar.stop()


class Lines:
    """A line at the end of each epoch, and twice a minute within long ones."""

    def __init__(self, total: float, epochs: int | None, stream: TextIO | None) -> None:
        self._stream = stream
        self._epochs = epochs
        self._total = total
        self._done = 0.0
        self._epoch: int | None = None
        self._started_s = self._told_s = time.monotonic()

    def advance(self, work: float, epoch: int, case: str) -> None:
        if self._epochs is not None and self._epoch is not None and epoch != self._epoch:
            self._tell(f"epoch {self._epoch + 1} of {self._epochs} done")
        self._epoch = epoch
        self._done += work
        if time.monotonic() - self._told_s >= _LINE_EVERY_S:
            self._tell(f"epoch {epoch + 1}{'' if self._epochs is None else f' of {self._epochs}'}, {case}")

    def drop(self, work: float) -> None:
        self._total -= work

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        if self._epochs is not None and self._epoch is not None and self._left <= 0:
            self._tell(f"epoch {self._epoch + 1} of {self._epochs} done")

    @property
    def _left(self) -> float:
        """Share of the total, less what sums of fractions leave over; 0 where nothing is to be done."""
        return max(0.0, 1 - self._done / self._total - 1e-9) if self._total > 0 else 0.0

    def _tell(self, where: str) -> None:
        self._told_s = time.monotonic()
        elapsed_s = self._told_s - self._started_s
        line = f"{where} after {format_seconds(elapsed_s)}"
        if self._left > 0 and self._done > 0:
            line += f", about {format_seconds(elapsed_s * self._left / (1 - self._left))} left"
        show(f"{line}\n", self._stream)
