"""The JSON document: NumPy and non-finite values, and what has no place in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncclbench.cli.output import document, emit_json, plain


def test_every_command_shares_the_first_keys() -> None:
    assert document("sweep", run="r", ok=True, message="done", rest={"rows": []}) == {
        "schema": 1,
        "command": "sweep",
        "run": "r",
        "ok": True,
        "message": "done",
        "environment": None,
        "rows": [],
    }


def test_one_line_of_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"path": Path("a/größe\udc80"), "time": float("nan")})
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert text.isascii()
    assert json.loads(text) == {"path": "a/größe\udc80", "time": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(1.5), 1.5),
        (np.float32("inf"), None),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1.0, np.nan]]), [[1.0, None]]),
        (float("-inf"), None),
        (0.1 + 0.2, 0.30000000000000004),
        ((1, 2), [1, 2]),
        ({3: (None, "x")}, {"3": [None, "x"]}),
        (True, True),
    ],
)
def test_values_become_plain(value: Any, expected: Any) -> None:
    result = plain(value)
    assert result == expected
    assert type(result) is type(expected)


def test_what_json_does_not_have_is_a_fault_not_a_string() -> None:
    with pytest.raises(TypeError, match="object has no place"):
        plain({"key": object()})
