"""Weights on one rank: random bytes that change with every version, all of which can be checked exactly.

Byte i of version v is byte i of the base, which every rank makes of the seed, xor v mod 256. So each byte of
a version differs from the same byte of the 255 versions before it: one that was not moved is always seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ncclbench.worker.device import Device

# Data is made and compared in pieces of so many bytes.
_PIECE = 16 << 20
_WORD = 8
# Places all over the weights that a generator looks at after each step: of one version, or torn.
_SAMPLES = 64


def mask_word(version: int) -> int:
    """The eight bytes that version ``version`` is xored with, as a signed integer."""
    byte = version % 256
    return int.from_bytes(bytes([byte] * _WORD), "little", signed=True)


class Weights:
    """All tensors of a model, behind one another.

    Attributes:
        tensors: of dtype uint8, in the order of the model.
        flat: all of them as one.
        version: whose bytes the buffer of a trainer holds.
    """

    def __init__(self, sizes: Sequence[int], seed: int, device: Device, step: Callable[[], None]) -> None:
        """Make the base, and a buffer with version 0.

        Args:
            sizes: bytes of each tensor.
            step: called between pieces, so that a supervisor sees that it goes on.
        """
        self._device = device
        self._step = step
        self.nbytes = sum(sizes)
        words = -(-self.nbytes // _WORD)
        self._base = torch.empty(words, dtype=torch.int64, device=device.torch_device)
        self._words = torch.empty_like(self._base)
        for number, first in enumerate(range(0, words, _PIECE // _WORD)):
            count = min(_PIECE // _WORD, words - first)
            random = np.random.default_rng((seed, number)).integers(0, 1 << 64, count, dtype=np.uint64)
            for copy in (self._base, self._words):
                copy[first : first + count] = torch.from_numpy(random.view(np.int64))
            step()
        self.flat = self._words.view(torch.uint8)[: self.nbytes]
        self.tensors = list(torch.split(self.flat, list(sizes)))
        self.version = 0
        places = np.unique(np.linspace(0, self.nbytes - 1, _SAMPLES).astype(np.int64))
        self._places = torch.from_numpy(places).to(device.torch_device)
        self._base_there = self._base.view(torch.uint8)[self._places]

    def become(self, version: int) -> None:
        """The trainer's side: hold another version. Takes a pass over all bytes, outside the clock."""
        change = mask_word(self.version) ^ mask_word(version)
        for piece in torch.split(self._words, _PIECE // _WORD):
            piece.bitwise_xor_(change)
            self._step()
        self._device.synchronize()
        self.version = version

    def wrong(self, version: int) -> int:
        """How many bytes are not of that version."""
        word, wrong = mask_word(version), 0
        last = self.nbytes
        pieces = zip(
            torch.split(self._base, _PIECE // _WORD), torch.split(self._words, _PIECE // _WORD), strict=True
        )
        for base, own in pieces:
            expected = base ^ word
            # The last word may be longer than the weights.
            nbytes = min(last, base.numel() * _WORD)
            pair = (expected.view(torch.uint8)[:nbytes], own.view(torch.uint8)[:nbytes])
            if not torch.equal(*pair):
                wrong += int((pair[0] != pair[1]).sum())
            last -= nbytes
            self._step()
        return wrong

    def wrong_samples(self, version: int) -> int:
        """How many of the bytes that ``is_torn`` looks at are not of that version."""
        found = self.flat[self._places] ^ self._base_there
        return int((found != version % 256).sum())

    def is_torn(self) -> bool:
        """Whether bytes of different versions are seen at places all over the weights."""
        found = self.flat[self._places] ^ self._base_there
        return bool((found != found[0]).any())
