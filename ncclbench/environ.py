"""The environment variables of this process: the one place that reads, sets and removes them.

What only reads takes a mapping, ``variables()`` by default, so that tests can give another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def variables() -> Mapping[str, str]:
    """All of them by name, as they are at any moment."""
    return os.environ


def variable(name: str) -> str | None:
    """The value of one; None where it is not set."""
    return os.environ.get(name)


def set_variables(values: Mapping[str, str]) -> None:
    """Set these, also where they were set."""
    os.environ.update(values)


def set_defaults(values: Mapping[str, str]) -> None:
    """Set those of these that nobody has set."""
    for name, value in values.items():
        os.environ.setdefault(name, value)


def unset(*names: str) -> None:
    """Remove these; those that are not there are passed over."""
    for name in names:
        os.environ.pop(name, None)
