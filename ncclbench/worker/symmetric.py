"""Buffers from NCCL's own allocator, and the windows of them that communicators register. CUDA only."""

from __future__ import annotations

from typing import Any

import torch


class SymmetricMemory:
    """One allocation, for all arms alike: those that are not ``symm`` find the same buffers unregistered.

    Attributes:
        storage: its bytes.
    """

    def __init__(self, backend: Any, nbytes: int, device: torch.device) -> None:
        """Allocate; the same number of bytes on every rank, or a later window would wait for ever.

        Args:
            backend: of a process group, for its allocator.

        Raises:
            AttributeError, RuntimeError: it has none, or there is not so much memory.
        """
        self._pool = torch.cuda.MemPool(backend.mem_allocator)
        with torch.cuda.use_mem_pool(self._pool, device):
            self.storage = torch.empty(nbytes, dtype=torch.uint8, device=device)

    def register(self, backend: Any) -> None:
        """Make it a symmetric window of a communicator; all its ranks call this.

        Raises:
            AttributeError, RuntimeError: the backend cannot (nccl-lazy has no such method in torch 2.15).
        """
        backend.register_mem_pool(self._pool, symm=True)

    def deregister(self, backend: Any) -> None:
        """End the window, before its communicator ends: torch warns of one that is left, and may hang."""
        backend.deregister_mem_pool(self._pool)
