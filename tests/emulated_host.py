"""A host of an emulated cluster: Linux namespaces, and the processes in them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Literal

import psutil
from tools import require_tool

# For the end of what was killed, and for a command that takes milliseconds where nothing else runs.
REAP_S = 20.0
_COMMAND_S = 30.0

_NAMESPACES = ("--net", "--uts", "--mount", "--pid")

# Run as the first process of a host. The file of names lives in memory that only its mount keeps. bbr and
# cubic find a shaped rate more slowly than reno. What children of the host leave behind is reaped by the
# kernel because SIGCHLD is ignored; then the host waits for the end of its standard input.
_FIRST_PROCESS = """
echo "$1" > /proc/sys/kernel/hostname
echo reno > /proc/sys/net/ipv4/tcp_congestion_control
[ ! -e /proc/sys/net/ipv6 ] || echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
mount -t tmpfs names /mnt
echo "$2" > /mnt/hosts
mount --bind /mnt/hosts /etc/hosts
umount --lazy /mnt
echo ready
exec env --ignore-signal=CHLD cat
"""

# Run as the parent of a command in a host: nsenter stops itself, for good, when its own child is stopped.
_PARENT = 'cd "$1" && shift && "$@"; exit $?'


class EmulationError(Exception):
    """The machine does not let a cluster be made, or a setting be changed; in the words of its tools."""


class Host:
    """A host, or the switches: what runs in it sees its processes, names and interfaces only.

    It lives as long as its first process, and that as long as its standard input is open here: until
    ``close`` or the end of this process, whatever ends it. With a first process go all others of its
    namespace, by the kernel's hand, and with the last process the network and its devices.
    """

    def __init__(self, name: str, names: str) -> None:
        """Make it.

        Args:
            names: its /etc/hosts.

        Raises:
            EmulationError: the machine does not let it be made.
        """
        self.name = name
        options = ("--fork", "--kill-child", "--mount-proc")
        self._maker = subprocess.Popen(
            ["unshare", *_NAMESPACES, *options, "sh", "-ec", _FIRST_PROCESS, "sh", name, names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._maker.stdout is not None
        if self._maker.stdout.readline() != "ready\n":
            raise EmulationError(f"no host can be emulated here: {self._maker.communicate()[1].strip()}")
        (self._first,) = psutil.Process(self._maker.pid).children()

    @property
    def pid(self) -> int:
        """Of its first process, as this process sees it."""
        return int(self._first.pid)

    def close(self) -> None:
        """Take it down; returns when all that ran in it has ended."""
        with suppress(psutil.NoSuchProcess):
            self._first.kill()
        try:
            self._maker.communicate(timeout=REAP_S)
        except subprocess.TimeoutExpired:
            self._maker.kill()
            self._maker.communicate(timeout=REAP_S)

    def kill_all(self) -> None:
        """Kill whatever runs in it, in whatever session, but for its first process."""
        kill = "kill -KILL -1 2>/dev/null || true"  # it fails where there is nothing to kill
        subprocess.run([*self._enter("--pid"), "sh", "-c", kill], check=True, timeout=_COMMAND_S)

    def configure(self, tool: Literal["ip", "tc"], lines: Sequence[str]) -> None:
        """Give lines of commands to ip or tc.

        Raises:
            EmulationError: one of them was refused.
        """
        done = subprocess.run(
            [*self._enter("--net"), require_tool(tool), "-batch", "-"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise EmulationError(f"{tool} refused a setting of {self.name}: {done.stderr.strip()}")

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> Process:
        """Start a command in it, in the working folder of this process."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  read until the last use
        popen = subprocess.Popen(
            [*self._enter(*_NAMESPACES), "sh", "-c", _PARENT, "sh", os.getcwd(), *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(env),
            # Ctrl-C is for the tests alone: they take the cluster down.
            start_new_session=True,
        )
        return Process(popen, out, err, env.get("RANK"))

    def _enter(self, *namespaces: str) -> list[str]:
        return ["nsenter", "--target", str(self.pid), *namespaces]


def processes_in(hosts: Sequence[Host]) -> list[psutil.Process]:
    """What runs in hosts, but for their first processes."""
    first = [host.pid for host in hosts]
    namespaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid in first}
    found = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.readlink(f"/proc/{process.pid}/ns/pid") in namespaces and process.pid not in first:
                found.append(process)
    return found


@dataclass(frozen=True, slots=True)
class Process:
    """A command in a host.

    Attributes:
        popen: of the program that takes it into the host, and ends as it does.
        out, err: where it writes: files without a name, so that nobody need read along.
        rank: RANK in its environment, if it is there.
    """

    popen: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    rank: str | None

    def below(self) -> list[psutil.Process]:
        """The command as it runs in the host, and all that it has started and that is still below it.

        Between it and ``popen`` stands its parent there, which must not be stopped: see ``_PARENT``.
        """
        found = []
        for parent in self.children():
            with suppress(psutil.NoSuchProcess):
                found += parent.children(recursive=True)
        return found

    def children(self) -> list[psutil.Process]:
        """Of ``popen``: the command's parent in the host while it is there."""
        with suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.popen.pid).children())
        return []

    def reap(self) -> None:
        """Wait for its end after it was killed in its host, and end ``popen`` if it should stand."""
        try:
            self.popen.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(REAP_S)

    def texts(self) -> tuple[str, str]:
        """What it has written to standard output and error up to now."""
        return _text(self.out), _text(self.err)


def _text(file: IO[bytes]) -> str:
    # Not by seek and read: the file's position is the writer's as well.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
