"""PARSERS: every way in for what others wrote. Tests and ``make fuzz`` go over all of them."""

from __future__ import annotations

from parsers_files import FILES
from parsers_typed import TYPED
from parsing import Parser

PARSERS: dict[str, Parser] = {**TYPED, **FILES}
