"""What numbers and words in the lines of a run may be; beyond lies nothing but a broken file."""

from __future__ import annotations

from typing import Annotated

import msgspec

# Thirty years of microseconds: sums of longer times would overflow.
Time = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
Count = Annotated[int, msgspec.Meta(ge=1, lt=1 << 40)]
# Of bytes and elements: above every size that a plan can hold, and small enough to divide.
Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Word = Annotated[str, msgspec.Meta(max_length=100)]
