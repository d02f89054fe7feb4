"""A store that counts what is read of it, for processes that connect to each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store


class Counted(Store):
    """One rank's connection to ``inner``.

    Attributes:
        gets: entries read; ``nbytes``: of them.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        self.gets = 0
        self.nbytes = 0

    def set(self, key: str, value: Any) -> None:
        self._inner.set(key, value)

    def get(self, key: str) -> bytes:
        return self._read([self._inner.get(key)])[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._read(self._inner.multi_get(keys))

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        self._inner.multi_set(keys, values)

    def append(self, key: str, value: Any) -> None:
        self._inner.append(key, value)

    def add(self, key: str, more: int) -> int:
        return int(self._inner.add(key, more))

    def check(self, keys: list[str]) -> bool:
        return bool(self._inner.check(keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._inner.wait(keys, *([] if timeout is None else [timeout]))

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> Counted:
        return self

    def _read(self, values: list[bytes]) -> list[bytes]:
        self.gets += len(values)
        self.nbytes += sum(map(len, values))
        return values
