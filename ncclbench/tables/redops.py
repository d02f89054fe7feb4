"""REDOPS: the reduction operators, and on which kinds of element they mean something."""

from __future__ import annotations

from dataclasses import dataclass

from ncclbench.tables.dtypes import Dtype


@dataclass(frozen=True, slots=True)
class RedOp:
    """One reduction operator.

    Attributes:
        name: as nccl-tests prints it.
        torch_name: attribute of ``torch.distributed.ReduceOp``.
        kinds: element kinds it is defined on; what a backend then supports is probed, not listed.
        grows: repeated in-place application makes values grow without bound.
        exact: the result does not depend on order or rounding for the data ncclbench uses.
    """

    name: str
    torch_name: str
    kinds: tuple[str, ...]
    grows: bool = False
    exact: bool = True

    def refusal(self, dtype: Dtype) -> str | None:
        """Why this operator has no meaning on ``dtype``; None where it has."""
        if dtype.kind in self.kinds:
            return None
        return f"{self.name} is not defined on {dtype.name}"


_NUMBERS = ("float", "int", "uint")

_ENTRIES = (
    RedOp("sum", "SUM", (*_NUMBERS, "complex", "bool"), grows=True),
    RedOp("prod", "PRODUCT", (*_NUMBERS, "complex", "bool")),
    RedOp("min", "MIN", (*_NUMBERS, "bool")),
    RedOp("max", "MAX", (*_NUMBERS, "bool")),
    RedOp("avg", "AVG", (*_NUMBERS, "complex"), exact=False),
    RedOp("band", "BAND", ("int", "uint", "bool")),
    RedOp("bor", "BOR", ("int", "uint", "bool")),
    RedOp("bxor", "BXOR", ("int", "uint", "bool")),
)

REDOPS: dict[str, RedOp] = {entry.name: entry for entry in _ENTRIES}
