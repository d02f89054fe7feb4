"""``--redact``: the option, what it does to the document, and what the owner is told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncclbench.cli.declaring import option, under
from ncclbench.cli.output import plain
from ncclbench.terminal.columns import aligned
from ncclbench.terminal.streams import is_terminal, one_line, show

if TYPE_CHECKING:
    from ncclbench.report.redact import Redactor

redact_option = under(
    "What is written",
    option(
        "--redact",
        flag=True,
        help="Replace names of hosts, users and sites, addresses, paths, job ids and serial numbers.",
    ),
)

# Of a cluster of thousands the first are enough to find the others.
_MOST_LINES = 40


def shown_path(path: Path | None, redactor: Redactor | None) -> Path | str | None:
    """How a document names a file that was written: whole, or without where it lies and names in it."""
    return path if path is None or redactor is None else redactor.aliases.text(path.name)


def checked(content: Mapping[str, Any], redactor: Redactor | None) -> Mapping[str, Any]:
    """The same document, searched for names that were replaced.

    Raises:
        MeasurementError: one is there.
    """
    if redactor is not None:
        from ncclbench.report.contents import json_texts

        redactor.check(json_texts(plain(content)))
    return content


def tell_owner(redactor: Redactor | None) -> None:
    """What became what, to a terminal alone: what goes into a file may be sent on with the page."""
    if redactor is None or not is_terminal(sys.stderr):
        return
    replaced = redactor.aliases.replaced
    lines = aligned(replaced[:_MOST_LINES], left=None, gap=" ", at_least=(12,))
    if len(replaced) > _MOST_LINES:
        lines.append(f"and {len(replaced) - _MOST_LINES:,} more")
    lines += [f"left in running text, since it is a word too: {name}" for name in redactor.aliases.ambiguous]
    show("".join(f"ncclbench: {one_line(line)}\n" for line in lines), sys.stderr)
