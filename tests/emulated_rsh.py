"""rsh between emulated hosts, which mpirun starts its daemons with: ``HOST COMMAND..``, or ``--serve``.

It does what rsh and ssh do: the command runs in a shell of that host, what it writes comes back, and the end
of either side is the end of both streams. It asks nobody who he is, in a network that nobody else reaches.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import NoReturn

_PORT = 514


def serve() -> NoReturn:
    """Answer until killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server(("", _PORT)) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rb") as sent:
        command = sent.readline().decode()
        subprocess.run(
            ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=connection, stderr=connection, check=False
        )
    os._exit(0)


def ask(host: str, command: str) -> None:
    """Run a command there, and write here what it writes."""
    with socket.create_connection((host, _PORT), timeout=10) as connection:
        connection.settimeout(None)
        connection.sendall(f"{command}\n".encode())
        while received := connection.recv(65536):
            os.write(1, received)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    ask(sys.argv[1], " ".join(sys.argv[2:]))
