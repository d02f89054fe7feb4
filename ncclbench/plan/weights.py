"""A model's worth of weights as sizes of tensors: like a transformer's, or as a file lists them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ncclbench.errors import RequestError
from ncclbench.tables.dtypes import find_dtype
from ncclbench.units import MAX_BYTES, format_bytes, parse_bytes

# bfloat16, as weights are usually sent.
_ITEMSIZE = 2
_VOCABULARY = 32_000
# Models of many experts have some 100,000.
MOST_TENSORS = 200_000
_MOST_MADE = 20_000
_MOST_FILE_BYTES = 16 << 20
_LONGEST_SHOWN = 80

_SHAPE = re.compile(r"([0-9]{1,12}(?:x[0-9]{1,12})+)(?:\s+(\S+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A family of transformers: from ``least_bytes`` of weights on, layers are this wide."""

    least_bytes: int
    hidden: int
    mlp: int

    def layer(self) -> list[int]:
        """Elements of a layer's tensors: norm, q, k, v, o, norm, gate, up, down."""
        square, wide = self.hidden * self.hidden, self.hidden * self.mlp
        return [self.hidden, square, square, square, square, self.hidden, wide, wide, wide]


# Widths of published models (Pythia, TinyLlama, Llama) at about these sizes, Llama's 8/3 for the MLP.
_SHAPES = (
    _Shape(16 << 30, 5120, 13824),
    _Shape(6 << 30, 4096, 11008),
    _Shape(1 << 30, 2048, 5632),
    _Shape(256 << 20, 1024, 2816),
    _Shape(32 << 20, 512, 1408),
    _Shape(4 << 20, 128, 352),
)


def split_weights(nbytes: int) -> list[int]:
    """Bytes of each tensor of a transformer with so many bytes in all, in the order of the model.

    Embedding, layers of nine tensors, a last norm; what no further layer fits into is the embedding's.
    Under 4 MiB it is one tensor.
    """
    shape = next((shape for shape in _SHAPES if nbytes >= shape.least_bytes), None)
    if shape is None:
        return [nbytes]
    layer = [elements * _ITEMSIZE for elements in shape.layer()]
    norm = shape.hidden * _ITEMSIZE
    # A small model is not all embedding.
    embedding = min(_VOCABULARY * norm, nbytes // 4)
    layers = (nbytes - embedding - norm) // sum(layer)
    # A model of so many layers would have wider ones; the list of tensors stays short.
    layers = min(layers, (_MOST_MADE - 2) // len(layer))
    embedding = nbytes - norm - layers * sum(layer)
    return [embedding, *(layer * layers), norm]


def parse_weights(text: str, option: str) -> list[int]:
    """Bytes of each tensor, of a size like ``1G`` or of a file that lists them.

    Raises:
        RequestError: neither a size nor a file, or a line of the file says nothing.
    """
    if not text.strip():
        raise RequestError(f"{option} is empty: write bytes like 1G, or name a file")
    try:
        return split_weights(parse_bytes(text, option))
    except RequestError as error:
        if not _exists(text):
            if re.match(r"[0-9.]", text.strip()) and len(text) <= _LONGEST_SHOWN:
                raise
            raise RequestError(
                f"{option} {_quoted(text)} is neither a size nor a file: write bytes like 1G, or name a file"
            ) from error
    return _read(Path(text), option)


def _exists(name: str) -> bool:
    """Whether there is such a file, as far as that can be told: no file has a name that is too long."""
    try:
        return Path(name).exists()
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


def _read(path: Path, option: str) -> list[int]:
    try:
        if not os.path.isfile(path):
            raise RequestError(f"{option} {path} is no file: name one with a size or shape a line")
        with path.open("rb") as file:
            # Its size is not asked for: files of /proc have none.
            data = file.read(_MOST_FILE_BYTES + 1)
        if len(data) > _MOST_FILE_BYTES:
            raise RequestError(
                f"{option} {path} is larger than {format_bytes(_MOST_FILE_BYTES)}: no list of tensors"
            )
        text = data.decode("utf-8")
    except OSError as error:
        raise RequestError(f"{option} {path} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise RequestError(f"{option} {path} is no text: write a size or shape a line") from None
    sizes = list(_sizes(text, f"{option} {path}"))
    if not sizes:
        raise RequestError(f"{option} {path} lists no tensor: write a size or shape a line")
    if len(sizes) > MOST_TENSORS:
        raise RequestError(f"{option} {path} lists {len(sizes):,} tensors: take up to {MOST_TENSORS:,}")
    if sum(sizes) >= MAX_BYTES:
        raise RequestError(f"{option} {path} is more than 64T in all: no machine holds that")
    return sizes


def _sizes(text: str, where: str) -> Iterator[int]:
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if entry:
            yield _tensor_bytes(entry, f"{where} line {number}:")


def _tensor_bytes(entry: str, where: str) -> int:
    match = _SHAPE.fullmatch(entry)
    if match is None and len(entry) > _LONGEST_SHOWN:
        raise RequestError(f"{where} {_quoted(entry)} is neither a size nor a shape: write 16M or 4096x4096")
    if match is None:
        return parse_bytes(entry, where)
    try:
        itemsize = find_dtype(match[2] or "bfloat16").itemsize
    except RequestError as error:
        raise RequestError(f"{where} {error}") from None
    elements = 1
    for extent in match[1].lower().split("x"):
        elements *= int(extent)
    nbytes = elements * itemsize
    if not 0 < nbytes < MAX_BYTES:
        raise RequestError(f"{where} {_quoted(entry)} is {nbytes} bytes: take 1 byte to 64T")
    return nbytes


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")
