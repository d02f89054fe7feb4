"""Documents that recorders write as JSON: one, or several by the name of their backend."""

from __future__ import annotations

import json
from typing import Any

import msgspec

# What a recorder's document has at its top; some of it is in every version.
MARKS = ("version", "entries", "pg_config", "pg_status")
_MOST_BACKENDS = 100
# An empty list takes three bytes of the file and eighty in memory; of dumps, one byte in fifty begins one.
_BYTES_PER_CONTAINER = 6
_FREE_CONTAINERS = 1000


def read_json(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The documents in a file, each with the name of its backend; "" where it stands alone.

    Raises:
        ValueError: it is damaged, nested too deep, or no recorder's; in a few words.
    """
    if content.count(b"[") + content.count(b"{") > _FREE_CONTAINERS + len(content) // _BYTES_PER_CONTAINER:
        raise ValueError("is JSON with more lists and tables than any flight recorder writes")
    try:
        data = msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        data = _loose(content, str(error))
    documents = documents_in(data)
    if not documents:
        raise ValueError("is JSON, but not of a flight recorder")
    return documents


def _loose(content: bytes, reason: str) -> Any:
    """JSON with the infinities that some writers put in it, and that msgspec does not take.

    Raises:
        ValueError: it is damaged otherwise.
    """
    if b"Infinity" in content or b"NaN" in content:
        try:
            return json.loads(content)
        except RecursionError:
            raise ValueError("is nested too deep") from None
        except ValueError as error:
            reason = str(error)
    raise ValueError(f"is damaged JSON: {reason}") from None


def documents_in(data: Any) -> list[tuple[str, dict[str, Any]]]:
    """The recorders' documents in what a file holds: itself, or each value of it."""
    if not isinstance(data, dict):
        return []
    if is_document(data):
        return [("", data)]
    if len(data) > _MOST_BACKENDS:
        return []
    return [(str(name), value) for name, value in data.items() if is_document(value)]


def is_document(data: Any) -> bool:
    """Whether a recorder may have written it."""
    if not isinstance(data, dict) or not any(mark in data for mark in MARKS):
        return False
    return isinstance(data.get("entries", []), list) and isinstance(data.get("pg_config", {}), dict)
