"""DTYPES: the element types, what they hold exactly, and the short names people type for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ncclbench.names import lookup


@dataclass(frozen=True, slots=True)
class Dtype:
    """One element type.

    Attributes:
        name: torch's name for it, ``torch.<name>``.
        itemsize: bytes per element.
        kind: how data for it is made and compared.
        exact_bound: integers of magnitude up to this are exact in it (and in sums that stay within it).
        largest: largest finite value, for bounding repeated in-place sums; None where values wrap.
        aliases: other names people use, nccl-tests' among them.
    """

    name: str
    itemsize: int
    kind: Literal["float", "int", "uint", "bool", "complex"]
    exact_bound: int
    largest: float | None = None
    aliases: tuple[str, ...] = ()


_ENTRIES = (
    Dtype("float32", 4, "float", 2**24, 3.4028234e38, ("float", "fp32")),
    Dtype("float64", 8, "float", 2**53, 1.797e308, ("double", "fp64")),
    Dtype("float16", 2, "float", 2**11, 65504.0, ("half", "fp16")),
    Dtype("bfloat16", 2, "float", 2**8, 3.3895e38, ("bf16",)),
    Dtype("int8", 1, "int", 2**7 - 1, None, ("char",)),
    Dtype("uint8", 1, "uint", 2**8 - 1),
    Dtype("int16", 2, "int", 2**15 - 1),
    Dtype("int32", 4, "int", 2**31 - 1, None, ("int",)),
    Dtype("int64", 8, "int", 2**53),
    Dtype("uint16", 2, "uint", 2**16 - 1),
    Dtype("uint32", 4, "uint", 2**32 - 1),
    Dtype("uint64", 8, "uint", 2**53),
    Dtype("bool", 1, "bool", 1),
    Dtype("complex64", 8, "complex", 2**24, 3.4028234e38),
    Dtype("complex128", 16, "complex", 2**53, 1.797e308),
    Dtype("float8_e4m3fn", 1, "float", 2**4, 448.0, ("f8e4m3", "fp8_e4m3")),
    Dtype("float8_e5m2", 1, "float", 2**3, 57344.0, ("f8e5m2", "fp8_e5m2")),
    Dtype("float8_e4m3fnuz", 1, "float", 2**4, 240.0),
    Dtype("float8_e5m2fnuz", 1, "float", 2**3, 57344.0),
)

DTYPES: dict[str, Dtype] = {entry.name: entry for entry in _ENTRIES}


def find_dtype(name: str) -> Dtype:
    """The entry for torch's name or an alias (``half``, ``bf16``).

    Raises:
        RequestError: no such type.
    """
    by_any_name = DTYPES | {alias: entry for entry in DTYPES.values() for alias in entry.aliases}
    return lookup(by_any_name, "dtype", name.removeprefix("torch."))
