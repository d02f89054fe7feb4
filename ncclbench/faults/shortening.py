"""torch's errors, short enough for a table."""

from __future__ import annotations

import re

_LONGEST = 160
# A place in torch's sources, of gloo's with the condition that did not hold; the prefix of a store that
# nobody else sees.
_PLACES = re.compile(
    r"\[enforce fail at [^\]]*\] .*?\. |\[/?[\w./+-]+:\d+\] ?|/ncclbench-[0-9a-f]+/launch\d+/"
)


def shortened(error: str) -> str:
    """The first sentence, without places in source files."""
    return _PLACES.sub("", error).split(". ")[0][:_LONGEST]
