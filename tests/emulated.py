"""A cluster on one machine whose links have known rates: hosts made of Linux namespaces, for tests.

Each host has a network, a host name, an /etc/hosts and process numbers of its own, and one interface,
eth0, on an emulated switch. Rates are those of the wire, in Mbit/s; TCP carries 95.6 % of them
(``GOODPUT``). Token buckets hold 16 KiB, which pass at once: measure with messages well above that.

Nothing of a cluster has a name outside of it: neither namespaces nor devices nor files. So clusters cannot
get in each other's way, and there is nothing to sweep after a crash: see ``Host``.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass

import psutil
from emulated_host import EmulationError, Host, Process, processes_in
from emulated_launchers import JOB_MARK, RANK_NAMES, STARTING, Daemons, Launcher, Place, Ranks
from sweeping import Outcome, beside
from tools import miss, require_tool

# What of the wire's rate is left to TCP: 1448 of the 1514 bytes that the shapers count for a full packet.
GOODPUT = 1448 / 1514
# Beyond it the processor is slower than the wire, and the configured rate is no truth any more.
MAX_MBIT = 1000.0

_BURST_BYTES = 16 * 1024
# Of what TCP hands to a host's shaper at once, and of what that lets through on credit at the end of a
# message. The usual 64 KiB would make 1 MiB look up to 6 % faster than its link.
_SEGMENT_BYTES = 6000
# Of the HTB class that is the whole interface; those of its destinations are 1:1, 1:2, ...
_WHOLE = "1:ffff"


@dataclass(frozen=True, slots=True)
class JobOutcome(Outcome):
    """How a job ended: of its first process, which is rank 0 or the torchrun beside it.

    Attributes:
        codes: exit codes by rank, under torchrun by host, of mpirun or srun its own; 128 plus the
            number where a signal ended it.
    """

    codes: tuple[int, ...]


class Job:
    """Commands that were started together and are still going."""

    def __init__(
        self, processes: Sequence[Process], mark: str, hosts: Sequence[Host], kill: Callable[[], None]
    ) -> None:
        self._processes = processes
        self._mark = mark
        self._hosts = hosts
        self._kill = kill

    def wait(self, timeout_s: float) -> JobOutcome:
        """Wait for the end of all.

        Raises:
            TimeoutError: some were not done in time; whatever runs in the cluster's hosts was killed.
        """
        deadline = time.monotonic() + timeout_s
        try:
            for process in self._processes:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = [number for number, each in enumerate(self._processes) if each.popen.poll() is None]
            self._kill()
            self.reap()
            said = "\n".join(self.texts())
            raise TimeoutError(
                f"processes {late} of {len(self._processes)} were not done in {timeout_s:.0f} s; "
                f"the first said:\n{said}"
            ) from None
        codes = tuple(process.popen.returncode for process in self._processes)
        return JobOutcome(codes[0], *self.texts(), codes)

    def reap(self) -> None:
        """Wait for processes that were killed in their hosts."""
        for process in self._processes:
            process.reap()

    def processes_of(self, rank: int) -> list[psutil.Process]:
        """What computes for a rank now: processes with its number that have started no others with it.

        That is the worker, or its supervisor while there is none, or a script that has no supervisor.
        """
        found = {each.pid: each for each in self.processes(rank)}
        parents = set()
        for each in found.values():
            with suppress(psutil.NoSuchProcess):
                parents.add(each.ppid())
        return [each for pid, each in found.items() if pid not in parents]

    def processes(self, rank: int | None = None) -> list[psutil.Process]:
        """The job's processes in all hosts, or a rank's, but for the one that serves the store.

        Nor are there the parents of commands, which must not be stopped: see ``Process.below``.
        """
        wanted = {(name, str(rank)) for name in RANK_NAMES}
        parents = {parent for each in self._processes for parent in each.children()}
        found = []
        for process in processes_in(self._hosts):
            if process in parents:
                continue
            with suppress(psutil.Error):
                environ = process.environ()
                is_ours = environ.get(JOB_MARK) == self._mark and process.name() != "ncclbench-store"
                if is_ours and (rank is None or wanted & environ.items()):
                    found.append(process)
        return found

    def texts(self) -> tuple[str, str]:
        """What its first process has written to standard output and error up to now."""
        return self._processes[0].texts()

    def signal(self, number: signal.Signals, process: int = 0) -> None:
        """Send a signal to one of the commands, as it runs in its host: see ``JobOutcome.codes``."""
        self._processes[process].below()[0].send_signal(number)

    def slowed(self, rank: int, factor: float = 2.0, run_s: float = 0.005) -> AbstractContextManager[None]:
        """Let a rank take ``factor`` times as long for what it computes, by SIGSTOP and SIGCONT.

        Workers that start in the meantime are found within 0.2 s.

        Args:
            run_s: how long it runs before it is stopped again.
        """

        def alternate(done: threading.Event) -> None:
            processes: list[psutil.Process] = []
            look_again = 0.0
            ran_s = stood_s = 0.0
            continued = time.monotonic()
            while not done.wait(run_s):
                if time.monotonic() >= look_again:
                    processes = self.processes_of(rank)
                    look_again = time.monotonic() + 0.2
                stopped = time.monotonic()
                _each(psutil.Process.suspend, processes)
                ran_s += stopped - continued
                # Waits are longer than asked for: what this one lacks or exceeds, the next makes good.
                time.sleep(max(0.0, (factor - 1) * ran_s - stood_s))
                _each(psutil.Process.resume, processes)
                continued = time.monotonic()
                stood_s += continued - stopped

        return beside(alternate)


def _each(act: Callable[[psutil.Process], None], processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            act(process)


class Cluster:
    """Hosts on one switch, or on several that meet in a core switch. Use as a context.

    At first all links have the rate ``rate_mbit`` in each direction, uplinks of switches ``MAX_MBIT``. The
    methods that set rates may be called at any time, also while something runs.

    Attributes:
        names: of the hosts, by which they find each other.
        rate_mbit: as given.
    """

    def __init__(
        self, hosts: int = 4, rate_mbit: float = 200.0, switches: Sequence[Sequence[int]] | None = None
    ) -> None:
        """A cluster that is not yet up.

        Args:
            switches: the hosts of each switch; one switch for all if not given.
        """
        self.names = tuple(f"node-{host:02d}" for host in range(hosts))
        self.rate_mbit = rate_mbit
        self._switches = [range(hosts)] if switches is None else switches
        if sorted(itertools.chain(*self._switches)) != list(range(hosts)):
            raise ValueError(f"every one of {hosts} hosts needs one switch: {switches}")
        self._up = ExitStack()
        self._hosts: list[Host] = []
        self._jobs: list[Job] = []
        self._daemons = Daemons(self._hosts, [_address(host) for host in range(hosts)], os.environ)
        # A port for each launch: the one before may not yet be free again.
        self._ports = itertools.count(29500)

    def __enter__(self) -> Cluster:
        """Bring it up; the calling test is skipped where that cannot be done."""
        for tool in ("ip", "tc", "unshare", "nsenter"):
            require_tool(tool)
        if os.geteuid() != 0:
            miss("emulating a cluster needs root")
        try:
            self._make()
        except BaseException as error:
            self._up.close()
            if isinstance(error, EmulationError):
                miss(str(error))
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._up.close()

    def restore_rates(self) -> None:
        """Set all rates to what they were at first."""
        rate = self.rate_mbit
        for host, others in self._others():
            classes = [_destination_class(other, rate) for other in others]
            self._hosts[host].configure("tc", [_whole_class(rate), *classes])
        buckets = [_bucket(f"port{host}", rate) for host in range(len(self._hosts))]
        for switch in range(len(self._switches)):
            buckets += _uplink(switch, MAX_MBIT)
        self._switch.configure("tc", buckets)

    def set_host(self, host: int, mbit: float) -> None:
        """The rate of a host's interface, in each direction."""
        self._hosts[host].configure("tc", [_whole_class(mbit)])
        self._switch.configure("tc", [_bucket(f"port{host}", mbit)])

    def set_direction(self, src: int, dst: int, mbit: float) -> None:
        """The rate from one host to another; the other direction stays as it is."""
        self._hosts[src].configure("tc", [_destination_class(dst, mbit)])

    def set_pair(self, one: int, other: int, mbit: float) -> None:
        """The rate between two hosts, in each direction."""
        self.set_direction(one, other, mbit)
        self.set_direction(other, one, mbit)

    def set_uplink(self, switch: int, mbit: float) -> None:
        """The rate between a switch and the core, in each direction, for all of its hosts together."""
        self._switch.configure("tc", _uplink(switch, mbit))

    def require(self, launcher: Launcher) -> None:
        """Let the daemons of a launcher run that is not started by ``start``; see ``Daemons.require``."""
        self._daemons.require(launcher)

    def run(
        self, host: int, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> Outcome:
        """Run a command in a host to its end; see ``Job.wait``."""
        return self._start([(host, argv, env or {})]).wait(timeout_s)

    def run_everywhere(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> JobOutcome:
        """Run a command in every host at once; see ``Job.wait``."""
        return self._start([(host, argv, env or {}) for host in range(len(self._hosts))]).wait(timeout_s)

    def launch(
        self,
        nproc_per_host: int,
        argv: Sequence[str],
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        launcher: Launcher = "env",
        round_robin: bool = False,
    ) -> JobOutcome:
        """``start``, to its end; see ``Job.wait``."""
        return self.start(nproc_per_host, argv, env, launcher, round_robin).wait(timeout_s)

    def start(
        self,
        nproc_per_host: int,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        launcher: Launcher = "env",
        round_robin: bool = False,
    ) -> Job:
        """Start ranks in every host.

        Args:
            argv: what Python is to run: ``("-m", "ncclbench", "sweep")``, or a script and its arguments.
            env: variables beside those of this process.
            launcher: "env" sets the variables of the ranks itself and starts sooner than the others.
            round_robin: rank 1 is on the second host; else the first host is filled first.
        """
        self._daemons.require(launcher)
        number = str(next(self._ports))
        # Two processors are shared by all ranks: more threads would only wait for each other.
        common = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", JOB_MARK: number, **(env or {})}
        master = {"MASTER_ADDR": self.names[0], "MASTER_PORT": number}
        ranks = Ranks(self.names, nproc_per_host, argv, common, master, round_robin)
        return self._start(STARTING[launcher](ranks), number)

    def _start(self, places: Sequence[Place], mark: str = "") -> Job:
        processes = [self._hosts[host].start(argv, {**os.environ, **env}) for host, argv, env in places]
        job = Job(processes, mark, self._hosts, self.kill_all)
        self._jobs.append(job)
        return job

    def kill_all(self) -> None:
        """Kill whatever runs in the hosts, daemons of launchers too."""
        for host in self._hosts:
            host.kill_all()
        self._daemons.forget()

    def _make(self) -> None:
        self._up.callback(self._reap)
        self._switch = self._host("switch", "")
        names = [f"{_address(host)} {name}" for host, name in enumerate(self.names)]
        for name in self.names:
            self._hosts.append(self._host(name, "\n".join(["127.0.0.1 localhost", *names])))
        self._connect()
        self._shape()

    def _host(self, name: str, names: str) -> Host:
        host = Host(name, names)
        self._up.callback(host.close)
        return host

    def _reap(self) -> None:
        self._daemons.forget()
        for job in self._jobs:
            job.reap()

    def _connect(self) -> None:
        wires = ["link add core type bridge", "link set core up"]
        for switch, members in enumerate(self._switches):
            wires += [f"link add switch{switch} type bridge", f"link set switch{switch} up"]
            wires += [f"link add up{switch} type veth peer name core{switch}"]
            wires += _plug(f"up{switch}", f"switch{switch}") + _plug(f"core{switch}", "core")
            for host in members:
                peer = f"peer name eth0 netns {self._hosts[host].pid}"
                wires += [f"link add port{host} type veth {peer}", *_plug(f"port{host}", f"switch{switch}")]
        self._switch.configure("ip", wires)
        for number, each in enumerate(self._hosts):
            address = f"addr add {_address(number)}/24 dev eth0"
            up = f"link set eth0 up gso_max_size {_SEGMENT_BYTES}"
            each.configure("ip", ["link set lo up", address, up])

    def _shape(self) -> None:
        """What a host sends is shaped in it, by destination; what it receives, at its port of the switch."""
        for host, others in self._others():
            filters = [
                "filter add dev eth0 parent 1: protocol ip prio 1 "
                f"u32 match ip dst {_address(other)}/32 flowid {_class(other)}"
                for other in others
            ]
            self._hosts[host].configure("tc", ["qdisc add dev eth0 root handle 1: htb", *filters])
        self.restore_rates()

    def _others(self) -> Iterator[tuple[int, list[int]]]:
        """Each host, and all others."""
        hosts = range(len(self._hosts))
        return ((host, [other for other in hosts if other != host]) for host in hosts)


def _address(host: int) -> str:
    return f"10.77.0.{host + 1}"


def _plug(device: str, bridge: str) -> list[str]:
    return [f"link set {device} master {bridge}", f"link set {device} up"]


def _rate(mbit: float) -> str:
    if not 0 < mbit <= MAX_MBIT:
        raise ValueError(f"{mbit} Mbit/s cannot be emulated: above 0, to {MAX_MBIT:.0f}")
    return f"{mbit}mbit"


def _class(dst: int) -> str:
    """The number of the HTB class of what goes to a host, in hexadecimal."""
    return f"1:{dst + 1:x}"


def _whole_class(mbit: float) -> str:
    """All that a host sends."""
    rate, size = _rate(mbit), _BURST_BYTES
    return f"class replace dev eth0 parent 1: classid {_WHOLE} htb rate {rate} burst {size} cburst {size}"


def _destination_class(dst: int, mbit: float) -> str:
    """What a host sends to another: nearly nothing is its own, the rest it borrows from the whole."""
    own, most, size = _rate(min(mbit, 0.1)), _rate(mbit), _BURST_BYTES
    return (
        f"class replace dev eth0 parent {_WHOLE} classid {_class(dst)} htb "
        f"rate {own} ceil {most} burst {size} cburst {size} quantum {size}"
    )


def _bucket(device: str, mbit: float) -> str:
    return f"qdisc replace dev {device} root tbf rate {_rate(mbit)} burst {_BURST_BYTES} latency 50ms"


def _uplink(switch: int, mbit: float) -> list[str]:
    return [_bucket(f"{end}{switch}", mbit) for end in ("up", "core")]
