"""What tells people, machines and places: its patterns in texts, and the keys of run.json it stands under."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ncclbench.tables.backends import BACKENDS
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.modes import MODES
from ncclbench.tables.redops import REDOPS
from ncclbench.tables.statistics import STATISTICS
from ncclbench.tables.topologies import TOPOLOGIES

# Every kind with its word: a host becomes node-1. The order is that of the page's notice.
WORDS = {
    "host": "node",
    "user": "user",
    "address": "address",
    "path": "path",
    "job": "job",
    "site": "site",
    "id": "id",
    "run": "run",
}

# By the whole key, in any case: what stands under it is a name whatever it looks like.
_KEYS = {
    "host": r"host|host_?names?|hosts|node_?name|node_?list|slurmd_nodename|master_addr|nccl_hostid",
    "user": r"user|user_?name|users|login|logname|owner|sudo_user|slurm_job_user",
    "address": r"(?:\w+_)?(?:ip|ipv[46]|mac|gid|guid|lid_path|mac_?address|address|addr)",
    "path": r"file|folder|folders|cwd|(?!ld_)\w+_(?:file|dir|home)",
    "job": r"job|\w*job_?id|\w*jobid|job_?name|run_id|array_job",
    "site": r"\w*partition|\w*account|\w*cluster_?name|cluster|queue|project|reservation|qos|namespace",
    "id": r"(?:\w+_)?(?:uuid|serial|serial_?numbers?|boot_id|machine_?id|instance_?id|container_?id"
    r"|pod|pod_?name|pod_?uid|asset_?tag)",
}
_KIND_OF_KEY = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KEYS.items()}
# Keys that only mean something below another one.
_BELOW = {
    ("hosts", "name"): "host",
    ("job", "id"): "job",
    ("job", "name"): "job",
    ("container", "id"): "id",
    # A registry and a team's name, mostly.
    ("container", "image"): "path",
}

# Names that nobody's host or account is known by.
COMMON_NAMES = frozenset(
    [
        "localhost",
        "root",
        "admin",
        "user",
        "users",
        "ubuntu",
        "debian",
        "centos",
        "rocky",
        "opc",
        "azureuser",
        "ec2-user",
        "nobody",
        "jovyan",
        "runner",
        "docker",
        "container",
        "slurm",
        "host",
        "node",
        "none",
        "null",
        "unknown",
        "default",
    ]
)
# What hardware, interfaces and quantiles are called is no name, even where a host is called like it.
_HARDWARE = re.compile(r"[abhlvt]\d{1,3}s?|g[bh]\d{3}|mi\d+\w?|rtx\d+|(?:eth|ib|mlx|bond|sm_|p)\d{1,3}")
_FEWEST_CHARACTERS = 3
# A number of fewer digits may be a size, a count or a rank.
_FEWEST_DIGITS = 5

_TOP_LEVEL = (
    "internal|local|localdomain|lan|corp|intranet|intra|home|cluster|svc|consul|com|net|org|edu|gov|mil|int"
    "|io|ai|cloud|dev|tech|eu|us|uk|de|fr|ch|at|nl|be|it|es|se|fi|dk|pl|cz|jp|cn|kr|tw|sg|au|ca|br|ru|il|ac"
)
# What ends a path in a text; a blank with a backslash before it does not.
_NO_PATH = r"\s\"'`<>()\[\]{},;:|*?=&\\"
_SEGMENT = rf"(?:\\ |[^{_NO_PATH}/])+"

# By kind of what it finds, in the order in which they are tried where several begin at one place.
_BEFORE_NAMES = {
    "url": r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^\s\"'`<>,;)\]}]+",
    "email": r"(?<![\w.+-])[\w.+-]+@(?:[a-z0-9-]+\.)+[a-z]{2,}(?![^\W_])",
    "share": r"(?<![\w\\])(?:[a-z]:\\|\\\\)[^\s\"'`<>|()\[\]{},;]+",
    # But for what ends an element of HTML.
    "path": r"(?<![\w./~$}-])(?!(?<=<)/[a-z]+>)(?:~[\w.-]*|\.{1,2}|\$\{?\w+\}?)?"
    rf"/{{1,2}}{_SEGMENT}(?:/{_SEGMENT})*/?",
}
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_AFTER_NAMES = {
    # Some interfaces are called by theirs.
    "mac": r"(?<![\w:-])(?:(?:[0-9a-f]{2}[:-]){5,19}[0-9a-f]{2}|enx[0-9a-f]{12})(?![\w:-])",
    "guid": r"(?<![\w:])(?:(?:[0-9a-f]{4}:){3}[0-9a-f]{4}|0x[0-9a-f]{16})(?![\w:])",
    "ipv4": rf"(?<![^\W_])(?<![\d_]\.)(?:{_OCTET}\.){{3}}{_OCTET}(?!\.?\d)(?![^\W_])",
    "ipv6": r"(?<![^\W_])(?=[0-9a-f]{0,4}:[0-9a-f]{0,4}:)[0-9a-f:]{2,45}(?:(?:\.\d{1,3}){3})?(?![\w:])",
    "cloud": r"(?<![^\W_])(?:i-[0-9a-f]{8,17}|ip-\d+-\d+-\d+-\d+|ocid1\.[\w.-]+"
    r"|arn:aws[\w-]*:[\w:/.+=@-]+)(?![^\W_])",
    "uuid": r"(?<![^\W_])(?:(?:GPU|MIG)-[0-9a-f]{4,}(?:-[0-9a-f]+)*"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?![^\W_])",
    # Of a container, short and long, and of a machine; 40 are a commit, which tells nobody.
    "hex": r"(?<![^\W_])(?=[a-f]*\d)(?=\d*[a-f])(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{12})(?![^\W_])",
    "job": r"(?<![^\W_])(?:job(?:[ _-]?id)?[ =:#]{1,3}|slurm-)(?P<number>\d{2,})(?![^\W_])",
    "domain": rf"(?<![\w.-])(?:[a-z0-9][a-z0-9-]*\.)+(?:{_TOP_LEVEL})(?![^\W_])",
}
# What kind of name each pattern finds.
KIND_OF_PATTERN = {
    "url": "address",
    "email": "address",
    "share": "path",
    "path": "path",
    "mac": "address",
    "guid": "address",
    "ipv4": "address",
    "ipv6": "address",
    "cloud": "id",
    "uuid": "id",
    "hex": "id",
    "job": "job",
    "domain": "site",
    "nodes": "host",
}

# Whose folder it is.
HOME = re.compile(r"/(?:home|homes|Users|nethome)/([A-Za-z0-9_][\w.-]*)|(?<![\w/])~([A-Za-z_][\w.-]*)/")
# "somebody@": who, where the place is one word.
AT = re.compile(r"(?<![\w.+-])([A-Za-z_][\w.-]*)@([A-Za-z0-9-]+)((?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})?")

_NAME = r"[^\W_][\w.-]*"
# Hosts in what programs and launchers print of failures and ranks, by the fixed words around them.
PRINTED_HOSTS = re.compile(
    rf"(?<![\w.-])(?:({_NAME}): Test (?:\w+ )?failure"  # nccl-tests, where it fails
    rf"|\.\. ({_NAME}) pid \d+: Test failure"
    rf"|Pid +\d+ on +({_NAME}) device\b"  # its ranks
    rf"|({_NAME}):\d+:\d+ \[\d+\] NCCL (?:INFO|WARN|ERROR)\b"
    rf"|srun: error: ({_NAME}(?:\[[\d,-]+\])?): tasks? \d"
    rf"|STEP [\d.]+ ON ({_NAME}) CANCELLED"
    rf"|PID \d+ on (?:node|host) ({_NAME}) exited"  # mpirun
    rf"|\[({_NAME}):\d{{3,}}\])"
)


@cache
def kind_of_key(key: str, above: str) -> str | None:
    """What stands under a key of run.json that lies below another one; None for a text like others."""
    if (above, key) in _BELOW:
        return _BELOW[above, key]
    return next((kind for kind, pattern in _KIND_OF_KEY.items() if pattern.fullmatch(key)), None)


def pattern(paths: Iterable[str], names: Iterable[str], hosts: Iterable[str]) -> re.Pattern[str]:
    """Everything that is to be replaced; the group that matched tells what it is.

    Args:
        paths: known ones, which may hold blanks.
        names: known ones; digits stand for any digits, so that a cluster of thousands is one alternative.
        hosts: those of the names that are hosts', for lists like gpu[01-16].
    """
    lines = map(re.escape, sorted(paths, key=len, reverse=True))
    shapes = dict.fromkeys(shape_of(name) for name in sorted(names, key=len, reverse=True))
    stems = dict.fromkeys(re.escape(re.split(r"\d", host)[0]) for host in hosts if re.search(r"\w\d", host))
    known = {
        "known_path": rf"(?<![\w/.-])(?:{_either(lines)})(?![\w-])",
        **_BEFORE_NAMES,
        "nodes": rf"(?<![^\W_])(?:{_either(stem for stem in stems if stem)})\[[\d,-]+\]",
        "name": rf"(?<![^\W_])(?P<core>{_either(shapes)})(?![^\W_])(?P<domain_of_it>(?:\.[a-z][\w-]*)*)",
        **_AFTER_NAMES,
    }
    return re.compile("|".join(f"(?P<{name}>{part})" for name, part in known.items()), re.IGNORECASE)


def shape_of(name: str) -> str:
    """A name as a pattern in which any digits stand for its digits; one of digits alone as it is."""
    if not any(char.isalpha() for char in name):
        return re.escape(name)
    return re.sub(r"\d+", r"\\d+", re.escape(name.casefold()))


def _either(patterns: Iterable[str]) -> str:
    return "|".join(patterns) or "(?!)"  # what never matches, for none at all


def is_address(text: str) -> bool:
    """Whether the text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_harmless_address(text: str) -> bool:
    """Whether it is nobody's IP address (loopback, unspecified, a mask), or none at all."""
    if not is_address(text):
        return True
    address = ipaddress.ip_address(text)
    return address.is_loopback or address.is_unspecified or text.startswith("255.255.")


def is_a_word(name: str) -> bool:
    """Whether a name cannot be told from an ordinary word in a text: short, of a table, of the page."""
    lowered = name.casefold()
    return (
        lowered in COMMON_NAMES
        or len(lowered) < (_FEWEST_DIGITS if lowered.isdecimal() else _FEWEST_CHARACTERS)
        or _HARDWARE.fullmatch(lowered) is not None
        or lowered in _page_words()
    )


@cache
def _page_words() -> frozenset[str]:
    tables = (BACKENDS, COLLECTIVES, DTYPES, MODES, REDOPS, STATISTICS, TOPOLOGIES)
    texts = [name for table in tables for name in table]
    for file in (Path(__file__).parent / "templates").iterdir():
        texts.append(file.read_text("utf-8"))
    return frozenset(
        word for text in texts for word in [text.casefold(), *re.findall(r"[a-z0-9_-]+", text.casefold())]
    )
