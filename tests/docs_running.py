"""Running the docs' examples without importing torch anew for each: one process that has, and forks.

A line of a block that is a plain ``ncclbench ...`` (or ``python -m module``) is run in a fork of that
process, as ``python -m`` would; what needs a shell is run by bash. Nothing of ncclbench is imported
beforehand, so that a changed copy of the checkout is taken like any other.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# No example takes longer; its own deadlines are shorter.
DEADLINE_S = 100.0
_NEEDS_SHELL = re.compile(r"[|<>;&$`*?\n]")


class Preloaded:
    """The process with torch in it. Commands run one at a time; leaving ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, text: str, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """A block, up to the first line that fails; its output, both streams in one."""
        said, lines = "", text.replace("\\\n", " ").splitlines()
        plain = [plain_command(line) for line in lines]
        if any(command is None for command in plain):
            return run_in_bash(text, cwd, environment)
        for command in plain:
            if command:
                order = {"command": command, "cwd": str(cwd), "environment": dict(environment)}
                answer = self._ask(order)
                said += answer["said"]
                if answer["code"]:
                    return subprocess.CompletedProcess(text, answer["code"], said, "")
        return subprocess.CompletedProcess(text, 0, said, "")

    def _ask(self, order: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()


def plain_command(line: str) -> list[str] | None:
    """Module and arguments of a line that needs no shell, [] of an empty line; None of any other."""
    try:
        words = shlex.split(re.sub(r"(^|\s)#.*", "", line))
    except ValueError:  # quotes that go on in the next line
        return None
    if not words:
        return []
    if _NEEDS_SHELL.search(re.sub(r"'[^']*'", "", line)):
        return None
    if words[0] == "ncclbench":
        return words
    return words[2:] if words[:2] == ["python", "-m"] else None


def run_in_bash(text: str, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Ends all that it started, where subprocess would end bash alone.
        ["timeout", "-k", "5", str(DEADLINE_S), "bash", "-euo", "pipefail", "-c", text],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# The process itself.


def _serve() -> None:
    """Orders from standard input, a line of JSON each, until it ends."""
    import scipy.optimize  # noqa: F401
    import torch.distributed  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        output = Path(order["cwd"]) / ".said"
        pid = os.fork()
        if pid == 0:
            _become(order, output)
        answer = {"code": _wait(pid), "said": output.read_text("utf-8", "replace")}
        output.unlink()
        print(json.dumps(answer), flush=True)


def _wait(pid: int) -> int:
    """The exit code of the command; 124 where it was ended for being late, with all it has started."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def _become(order: Mapping[str, Any], output: Path) -> None:
    """In the fork: what ``python -m`` would be."""
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        told = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for source, target in ((nothing, 0), (told, 1), (told, 2)):
            os.dup2(source, target)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environment"])
        module, *arguments = order["command"]
        paths = order["environment"].get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in (order["cwd"], *paths) if path]
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
