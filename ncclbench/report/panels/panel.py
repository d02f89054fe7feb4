"""What a panel is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Content = dict[str, Any]

# What a page is about: a Report, or the two sides of a comparison.
Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Panel(Generic[Subject]):
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
    build: Callable[[Subject], Content | None]
    template: str
    follows_selection: bool = False
