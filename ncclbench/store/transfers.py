"""What a transport run keeps: how weights came from one trainer to its generators, lines of samples.jsonl."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Rate, Size, Time, Word

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
        frozen_us: how long its weights had to stay as they were.
        generator_us: how long the generator that was held up longest was; of a way that lets it compute, in
            repetitions of their own, in which it did.
        stale_us: how long a generator that keeps computing still sees the old weights after the trainer has
            begun, the longest; None where the way does not let it compute meanwhile.
        slowdown: a step of such a generator while weights came, over a step before: the median; None where no
            whole step was made meanwhile.
        steps: of generators that computed, in all; ``torn``: in how many of them the weights were of two
            versions.
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
    frozen_us: _Times
    generator_us: _Times
    stale_us: _Times | None
    slowdown: Rate | None = None
    steps: Index = 0
    torn: Index = 0
    wrong: Index

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        stale = self.total_us if self.stale_us is None else self.stale_us
        times = (self.total_us, self.trainer_us, self.frozen_us, self.generator_us, stale)
        if len({len(each) for each in times}) != 1:
            return "not all its times are of the same repetitions"
        if self.torn > self.steps:
            return f"{self.torn} of {self.steps} steps saw torn weights"
        if self.tensors > self.nbytes:
            return f"{self.tensors} tensors have {self.nbytes} bytes"
        if self.wrong > self.nbytes * self.generators:
            return f"{self.wrong} bytes are wrong of {self.nbytes} on {self.generators} generators"
        return None


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


class TransferStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="transfer-status"):
    """A way that was asked for and cannot be had, and why."""

    way: Word
    arm: Word | None
    status: Literal["unavailable"]
    reason: str

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


class TransferFault(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="transfer-fault"):
    """What a way does when a peer dies or does not answer in the middle.

    Attributes:
        arm: id of the arm whose group carried it, or None for a way that needs none.
        fault: "peer-dies": the other side was killed; "timeout": it stood still (SIGSTOP).
        outcome: what was seen on the side that is left: an error, no answer until the deadline, transfers
            that went on as if nothing were, or the end of its own process; "not-made": the two sides did not
            come as far as the fault.
        said: in words; ``seconds``: until it was known.
    """

    way: Word
    arm: Word | None = None
    fault: Literal["peer-dies", "timeout"]
    outcome: Literal["raised", "hung", "completed", "crashed", "not-made"]
    said: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


TransferResult = TransferTimes | TransferLatency | TransferStatus | TransferFault
TRANSFER_LINES = (TransferTimes, TransferLatency, TransferStatus, TransferFault)
