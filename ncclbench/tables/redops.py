"""REDOPS: the reduction operators, and on which kinds of element they mean something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ncclbench.tables.dtypes import Dtype

Data = Literal["terms", "factors", "extremes", "rare bits", "common bits", "values"]


@dataclass(frozen=True, slots=True)
class RedOp:
    """One reduction operator.

    Attributes:
        name: as nccl-tests prints it.
        torch_name: attribute of ``torch.distributed.ReduceOp``.
        combine: numpy's function of the same meaning, by which results are checked.
        data: what is reduced in tests, so that every rank's part shows and nothing overflows: "terms" add up,
            "factors" are multiplied, "extremes" use all of the type, of "rare bits" and "common bits" single
            ranks decide, "values" are any.
        kinds: element kinds it is defined on; what a backend then supports is probed, not listed.
        grows: repeated in-place application makes values grow without bound.
        divides: the result is divided by the number of ranks.
        exact: the result does not depend on order or rounding for the data ncclbench uses.
    """

    name: str
    torch_name: str
    combine: str
    data: Data
    kinds: tuple[str, ...]
    grows: bool = False
    divides: bool = False
    exact: bool = True

    def refusal(self, dtype: Dtype) -> str | None:
        """Why this operator has no meaning on ``dtype``; None where it has."""
        if dtype.kind in self.kinds:
            return None
        return f"{self.name} is not defined on {dtype.name}"


_NUMBERS = ("float", "int", "uint")

_ENTRIES = (
    RedOp("sum", "SUM", "add", "terms", (*_NUMBERS, "complex", "bool"), grows=True),
    RedOp("prod", "PRODUCT", "multiply", "factors", (*_NUMBERS, "complex", "bool")),
    RedOp("min", "MIN", "minimum", "extremes", (*_NUMBERS, "bool")),
    RedOp("max", "MAX", "maximum", "extremes", (*_NUMBERS, "bool")),
    RedOp("avg", "AVG", "add", "terms", (*_NUMBERS, "complex"), divides=True, exact=False),
    RedOp("band", "BAND", "bitwise_and", "common bits", ("int", "uint", "bool")),
    RedOp("bor", "BOR", "bitwise_or", "rare bits", ("int", "uint", "bool")),
    RedOp("bxor", "BXOR", "bitwise_xor", "values", ("int", "uint", "bool")),
)

REDOPS: dict[str, RedOp] = {entry.name: entry for entry in _ENTRIES}
