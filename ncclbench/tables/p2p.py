"""PARTS: what ``ncclbench p2p`` can find out, each a part of its own."""

from __future__ import annotations

PARTS = {
    "ways": "every way to send, over sizes: until the call returns, is done, and the message is there",
    "first": "the first message to each peer of rank 0 against later ones, in a fresh group each time",
    "ordering": "in which order two ranks may call: completed, deadlocked or raised, and from which size on",
    "peers": "messages to several peers at once against one at a time, and beside a collective",
    "semantics": "what torch documents of point-to-point operations against what it does",
}

# Those whose ranks may hang for good: they get processes of their own.
IN_CELLS = ("ordering", "semantics")
