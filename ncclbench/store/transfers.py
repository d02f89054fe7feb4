"""What a transport run keeps: how weights came from one trainer to its generators, lines of samples.jsonl."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Size, Time, Word

_Times = Annotated[list[Time], msgspec.Meta(min_length=1)]


class TransferTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="transfer"):
    """All weights once from the trainer to all generators, by one way, in one epoch.

    Attributes:
        way: name in tables.transfers.TRANSFERS: two-sided (broadcast, send/recv ...) or one-sided.
        arm: id of the arm whose group carries it, or None for a way that needs none.
        nbytes: of all tensors; ``tensors``: how many they are; ``generators``: how many get them.
        epoch: from 0.
        total_us: by repetition, from the trainer's beginning until every generator holds every byte.
        trainer_us: how long the trainer was held up in it.
        generator_us: how long the generator that was held up longest was.
        stale_us: how long a generator that keeps computing still sees the old weights after the trainer has
            begun, the longest; None where the way does not let it compute meanwhile.
        wrong: bytes that were wrong, over all generators.
    """

    way: Word
    arm: Word | None
    nbytes: Size
    tensors: Count
    generators: Count
    epoch: Index
    total_us: _Times
    trainer_us: _Times
    generator_us: _Times
    stale_us: _Times | None
    wrong: Index

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        stale = self.total_us if self.stale_us is None else self.stale_us
        lengths = {len(times) for times in (self.total_us, self.trainer_us, self.generator_us, stale)}
        return None if len(lengths) == 1 else "not all its times are of the same repetitions"


class TransferLatency(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="latency"):
    """One small message from the trainer to one generator by one way, microseconds by repetition."""

    way: Word
    arm: Word | None
    nbytes: Size
    epoch: Index
    total_us: _Times

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


class TransferFault(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="transfer-fault"):
    """What a way does when a peer dies or does not answer in the middle.

    Attributes:
        fault: "peer-dies" or "timeout".
        outcome: what was seen on the side that is left.
        said: in words; ``seconds``: until it was known.
    """

    way: Word
    fault: Literal["peer-dies", "timeout"]
    outcome: Literal["raised", "hung", "completed", "crashed"]
    said: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


TransferResult = TransferTimes | TransferLatency | TransferFault
TRANSFER_LINES = (TransferTimes, TransferLatency, TransferFault)
