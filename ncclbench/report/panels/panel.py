"""What a panel is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ncclbench.report.model import Report

Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of the page.

    Attributes:
        name: its anchor in the page, and the name of its template.
        order: panels stand in rising order.
        title: its heading, and its word in the navigation.
        description: one sentence under the heading.
        build: what its template needs, or None when the report has nothing to show in it. The key
            ``figures`` holds the panel's figures.
        template: the file in templates/.
        follows_selection: its figures show the operation chosen in the selection bar.
    """

    name: str
    order: int
    title: str
    description: str
    build: Callable[[Report], Content | None]
    template: str
    follows_selection: bool = False
