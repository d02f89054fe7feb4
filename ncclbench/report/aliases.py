"""Names and what they become: node-1, user-1 ..., the same for the same, in texts and where names stand."""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ncclbench.environment.variables import HIDDEN
from ncclbench.report.identifying import (
    COMMON_NAMES,
    KIND_OF_PATTERN,
    WORDS,
    is_a_word,
    is_address,
    is_harmless_address,
    pattern,
    shape_of,
)
from ncclbench.report.text import list_text
from ncclbench.units import count_text

# Longer than any host's or user's.
_LONGEST_NAME = 255
# Names of a cluster are alike but for their numbers. From this length on, what is like the known ones is one.
_TELLING_LENGTH = 5
# So much of a path tells nothing.
_SHORTEST_PATH = 3
_OPEN_ENDED = ("url", "share", "path", "cloud")
_DEVICE_FILE = re.compile(r"/dev/(?:shm|null|zero|nvidia\d*|infiniband)")

NOUNS = {
    "host": "host",
    "user": "user",
    "address": "address",
    "path": "path",
    "job": "job id",
    "site": "site name",
    "id": "identifier",
    "run": "run folder",
}
_PLURALS = {"address": "addresses"}


class Known(NamedTuple):
    """A name that texts may hold: its kind, and the name that it is another form of, or itself."""

    kind: str
    origin: str


class _Alias(NamedTuple):
    """What a name became; the name as it was first met."""

    kind: str
    name: str
    word: str


class _Found(NamedTuple):
    """A name in a text: from where to where, and what it is."""

    start: int
    end: int
    kind: str
    name: str


class Aliases:
    """Learns names with ``know`` and ``know_run``, then replaces them."""

    def __init__(self) -> None:
        # What every name became, by its one spelling.
        self._aliases: dict[str, _Alias] = {}
        self._counts: Counter[str] = Counter()
        # By name in small letters.
        self._known: dict[str, Known] = {}
        self._paths: dict[str, str] = {}
        # Texts with an alias of their own, whatever is in them.
        self._exact: dict[str, str] = {}
        self._memo: dict[str, str] = {}

    # Learning, which ends with the first text that is asked for.

    def know(self, kind: str, name: str) -> None:
        """Learn a name that may stand in texts; a host's also by its first label."""
        name = name.strip()
        fits = re.fullmatch(r"[^\W_](?:[\w.-]*[^\W_])?", name) and len(name) <= _LONGEST_NAME
        if not fits or name.casefold() in COMMON_NAMES or (kind == "host" and is_address(name)):
            return
        short, dot, domain = name.partition(".")
        if kind != "host" or not dot:
            self._known.setdefault(name.casefold(), Known(kind, name))
            return
        other = self._known.setdefault(short.casefold(), Known(kind, name))
        # The same host, if its first label is all that is known of the other one.
        origin = other.origin if other.origin.casefold() == short.casefold() else name
        self._known.setdefault(name.casefold(), Known(kind, origin))
        if "." in domain:
            self._known.setdefault(domain.casefold(), Known("site", domain))

    def is_known(self, name: str) -> bool:
        """Whether it was learnt."""
        return name.casefold() in self._known

    def know_run(self, folder: Path) -> str:
        """Learn the folder of a run, the next one; what it is called instead."""
        alias = self._next("run")
        whole = os.path.realpath(folder)
        for path in (str(folder), whole):
            if len(path) >= _SHORTEST_PATH:
                self._paths[path] = alias
                self._aliases[path] = _Alias("run", path, alias)
        name = Path(whole).name
        if len(name) >= _TELLING_LENGTH and any(char.isdigit() for char in name):
            self._known.setdefault(name.casefold(), Known("run", whole))
        return alias

    def know_file(self, name: str) -> None:
        """Learn the name of a file that was read, with the folder it lies in and without."""
        self._paths[name] = self._alias("path", name)
        self._known.setdefault(name.rpartition("/")[2].casefold(), Known("path", name))

    def set_exact(self, text: str, alias: str) -> None:
        """A text that is always this alias."""
        self._exact[text] = alias

    # Replacing

    def text(self, text: str) -> str:
        """A text without names."""
        exact = self._exact.get(text)
        if exact is not None:
            return exact
        known = self._memo.get(text)
        if known is None:
            known = self._memo[text] = self._pattern.sub(self._replacement, text)
        return known

    def named(self, kind: str, text: str) -> str:
        """The new name of what stands where such names stand, whatever it looks like."""
        name = text.strip()
        if not name or name == HIDDEN:
            return text
        if kind == "path":
            return self._paths.get(name) or self._alias(kind, name)
        if kind in ("host", "address") and is_address(name):
            return text if is_harmless_address(name) else self._alias("address", name)
        if name.casefold() in COMMON_NAMES:
            # Of the hosts only one that is called so itself; elsewhere it is whatever machine this is.
            return text
        if kind == "host":
            return self._host(name)
        known = self._known.get(name.casefold())
        return self._alias(known.kind, known.origin) if known else self._alias(kind, name)

    def host(self, name: str) -> str:
        """The new name of a host by that name; also of one that is called localhost."""
        return self._alias("host", name) if name.casefold() in COMMON_NAMES else self.named("host", name)

    def _host(self, name: str) -> str:
        if re.search(r"[,\s]", name) and "[" not in name:
            return re.sub(r"[^,\s]+", lambda part: self.named("host", part[0]), name)
        host, _, port = name.rpartition(":")
        if host and port.isdecimal():
            return f"{self.named('host', host)}:{port}"
        known = self._known.get(name.casefold())
        return self._alias(known.kind, known.origin) if known else self._alias("host", name)

    # Telling

    @property
    def ambiguous(self) -> list[str]:
        """Names that are ordinary words too: replaced where they stand as names, left in texts."""
        names = dict.fromkeys(known.origin for name, known in self._known.items() if is_a_word(name))
        return [name for name in names if name.casefold() in self._aliases]

    @property
    def replaced(self) -> list[tuple[str, str]]:
        """Every alias with the name it stands for; for the owner alone."""
        return [(alias.word, alias.name) for alias in self._aliases.values()]

    @property
    def notice(self) -> list[str]:
        """What was done, for readers of the page; no name stands in it."""
        numbers = Counter(kind for kind, _ in {(alias.kind, alias.word) for alias in self._aliases.values()})
        kinds = [kind for kind in WORDS if numbers[kind]]
        parts = [count_text(numbers[kind], NOUNS[kind], _PLURALS.get(kind)) for kind in kinds]
        words = list_text([f"{self._words[kind]}-1" for kind in kinds], most=len(WORDS))
        lines = [
            f"Redacted: {list_text(parts, most=len(WORDS))} replaced ({words} and so on), the same by the "
            "same everywhere on this page."
            if parts
            else "Redacted: there was nothing to replace.",
            "Looked for: names of hosts, users and sites, network addresses, paths, job ids, serial numbers "
            "and other identifiers. Network interfaces, PCI ids and versions stay.",
        ]
        if count := len(self.ambiguous):
            lines.append(
                f"{count_text(count, 'name is an ordinary word', 'names are ordinary words')} too: replaced "
                "where a name stands, left in running text."
            )
        return lines

    def leak(self, text: str) -> str | None:
        """What kind of name that was replaced elsewhere a text holds; None for none."""
        for match in self._pattern.finditer(text):
            found = self._find(match)
            if found is None or found.name.isdecimal():  # a number may be a size as well as a job
                continue
            if _spelling(found.kind, found.name) not in self._aliases:
                continue
            # Letters alone may be a word of the page's own; a cell that holds nothing else is a name.
            if not match[0].isalpha() or match[0] == text.strip():
                return NOUNS[found.kind]
        return None

    # Within a text

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = [name for name in self._known if not is_a_word(name)]
        hosts = [name for name in names if self._known[name].kind == "host"]
        return pattern(self._paths, names, hosts)

    @cached_property
    def _host_shapes(self) -> frozenset[str]:
        return frozenset(shape_of(name) for name, known in self._known.items() if known.kind == "host")

    @cached_property
    def _words(self) -> dict[str, str]:
        """The word of each kind that no known name looks like: hosts called node-1 become nodes-1."""
        names = " ".join(self._known)
        return {
            kind: f"{word}s" if re.search(rf"\b{word}-\d+\b", names) else word for kind, word in WORDS.items()
        }

    def _replacement(self, match: re.Match[str]) -> str:
        found = self._find(match)
        if found is None:
            return match[0]
        before, after = match.string[match.start() : found.start], match.string[found.end : match.end()]
        alias = self._paths.get(found.name) if found.kind == "path" else None
        return f"{before}{alias or self._alias(found.kind, found.name)}{after}"

    def _find(self, match: re.Match[str]) -> _Found | None:
        """What a match is a name of; None where it looks like one and is none."""
        start, end = match.span()
        if match["core"] is not None:
            return self._find_known(match)
        if match["number"] is not None:
            return _Found(*match.span("number"), "job", match["number"])
        group = str(match.lastgroup)
        if group in ("ipv4", "ipv6") and is_harmless_address(match[0]):
            return None
        if group in _OPEN_ENDED:
            # The end of a sentence is no part of it.
            end -= len(match[0]) - len(match[0].rstrip(".!"))
        if group == "path" and (
            end - start < _SHORTEST_PATH or _DEVICE_FILE.fullmatch(match.string[start:end])
        ):
            return None
        kind = "path" if group == "known_path" else KIND_OF_PATTERN[group]
        return _Found(start, end, kind, match.string[start:end])

    def _find_known(self, match: re.Match[str]) -> _Found | None:
        core = match["core"]
        known = self._known.get(core.casefold())
        if known is None:
            # Digits stood for any digits: a name like those of the hosts, or nothing.
            if len(core) < _TELLING_LENGTH or shape_of(core) not in self._host_shapes:
                return None
            known = Known("host", core)
        # What follows a host's name by a dot is its domain.
        return _Found(match.start(), match.end() if known.kind == "host" else match.end("core"), *known)

    def _alias(self, kind: str, name: str) -> str:
        """The new name; the next of its kind for one that has none."""
        spelling = _spelling(kind, name)
        if spelling not in self._aliases:
            self._aliases[spelling] = _Alias(kind, name, self._next(kind))
        return self._aliases[spelling].word

    def _next(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{self._words[kind]}-{self._counts[kind]}"


def _spelling(kind: str, name: str) -> str:
    """A name's one spelling: capital letters make another path, but no other host."""
    return (name.rstrip("/") or name) if kind in ("path", "run") else name.casefold()
