"""Runs without names: hosts, users, addresses, paths, job ids become node-1, user-1 ..., everywhere the same.

It happens before anything is rendered: a run goes in, a run comes out in which every text has been looked
at, so that no panel can forget one. What is written is then searched for everything that was replaced.
"""

from __future__ import annotations

import dataclasses
import getpass
import itertools
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ncclbench.environment.variables import HIDDEN, is_secret, looks_secret, without_secrets
from ncclbench.errors import MeasurementError
from ncclbench.report.aliases import Aliases
from ncclbench.report.identifying import AT, HOME, PRINTED_HOSTS, kind_of_key
from ncclbench.store.model import Run

if TYPE_CHECKING:
    from ncclbench.compare.sides import Side

# Options of ncclbench whose value is a path, though it may hold no slash.
_PATH_OPTIONS = (
    "--out",
    "--resume",
    "--plan",
    "--machine",
    "--csv",
    "--against",
    "--base",
    "--new",
    "--compare-with",
)
# Variables stand under these.
_VARIABLES = ("variables", "environment")
# Those of import that are no value of the word before them.
_FLAGS = ("--json", "--redact")
# Shorter numbers cannot be told from others in a text.
_SHORTEST_JOB = 4
_LEFT_OUT = re.compile(rf"([=:]\s*)?{re.escape(HIDDEN)}")
# Shorter secrets cannot be told from words.
_SHORTEST_SECRET = 8


class Redactor:
    """Learns names from runs and gives the runs without them.

    Attributes:
        runs: the runs without names, in the order given; samples are shared with the originals.
        aliases: what was replaced by what.
    """

    def __init__(self, runs: Sequence[Run], others: Sequence[Any] = (), hosts: Collection[str] = ()) -> None:
        """Learn from the runs, in this order: the first host of the first one is node-1.

        Args:
            runs: whose names are to be replaced.
            others: what else ``shown`` will be asked for, made of fields, dictionaries and lists.
            hosts: names of hosts in them.
        """
        self.aliases = Aliases()
        self._shown: dict[str, str] = {}
        self._secrets: set[str] = set()
        self._commits: set[str] = set()
        self._learn_owner()
        for run in runs:
            self._learn(run.meta, "", "")
        for host in hosts:
            self.aliases.know("host", host)
        for each in (*runs, *others):
            for text in texts_of(each):
                self._learn_text(text)
        folders = [self.aliases.know_run(run.folder) for run in runs]
        arms = {arm.id for run in runs for arm in run.plan.arms}
        for file in dict.fromkeys(file for run in runs for file in _files(run)):
            if file not in arms:  # a file may be called like its tool
                self.aliases.know_file(file)
        for host in (*(host for run in runs for host in _hosts(run)), *hosts):
            self.aliases.host(host)
        self._keep_references(runs)
        self.runs: list[Run] = [
            dataclasses.replace(self._walk(run, "", ""), folder=Path(folder))
            for run, folder in zip(runs, folders, strict=True)
        ]
        self._given = {id(run): shown for run, shown in zip(runs, self.runs, strict=True)}

    @property
    def notice(self) -> list[str]:
        """What was done, for readers of the page; no name stands in it."""
        return self.aliases.notice

    def shown(self, other: Any) -> Any:
        """One of ``others`` without names."""
        return self._walk(other, "", "")

    def side(self, side: Side) -> Side:
        """A side of a comparison, of runs that were given, with the runs without names."""
        label, runs = side.label, [self._given[id(run)] for run in side.runs]
        for run, shown in zip(side.runs, runs, strict=True):
            # A side is called by its run's label, by its folder where there is none, or as it was typed.
            for name in (str(run.folder), *([] if run.meta.get("label") else [run.folder.name])):
                label = re.sub(rf"(?<![\w/.-]){re.escape(name)}/?(?![\w-])", shown.folder.name, label)
        arm = None if side.arm is None else self._text(side.arm)
        return dataclasses.replace(side, runs=runs, arm=arm, label=self._text(label))

    def check(self, texts: Iterable[str]) -> None:
        """Look for every name and secret that was replaced in what is about to be written.

        Raises:
            MeasurementError: one is there; the line does not say which.
        """
        for text in texts:
            kind = self.aliases.leak(text)
            found = "what looks like a secret" if any(each in text for each in self._secrets) else None
            if kind is not None or found is not None:
                raise MeasurementError(
                    f"the redacted output would still tell {found or f'the name of a {kind}'}, so it was not "
                    "written: this is a fault in ncclbench"
                )

    def _learn_owner(self) -> None:
        """Who redacts is mostly who measured."""
        with suppress(OSError, KeyError, ImportError):  # no account by that number
            self.aliases.know("user", getpass.getuser())
        with suppress(RuntimeError):  # no home folder
            self.aliases.know("user", Path.home().name)
        self.aliases.know("host", socket.gethostname())

    def _learn(self, value: Any, key: str, above: str) -> None:
        """Names by the keys they stand under."""
        if isinstance(value, Mapping):
            for _, under, below in _entries(value, key):
                self._learn(below, under, key)
        elif isinstance(value, list | tuple):
            for entry in value:
                self._learn(entry, key, above)
        elif isinstance(value, str | int) and not isinstance(value, bool):
            kind = kind_of_key(key, above)
            if key == "torch_git":
                self._commits.add(str(value).split()[0] if str(value).strip() else "")
            if kind == "job" and len(str(value)) >= _SHORTEST_JOB:
                self.aliases.know(kind, str(value))
            elif kind in ("host", "user", "site") and isinstance(value, str):
                for name in re.split(r"[,\s]+", value):
                    host, _, port = name.rpartition(":")
                    self.aliases.know(kind, host if host and port.isdecimal() else name)

    def _learn_text(self, text: str) -> None:
        for match in PRINTED_HOSTS.finditer(text):
            name = next(filter(None, match.groups()))
            if any(char.isalpha() for char in name):
                # Of a list the first: the others look like it.
                self.aliases.know("host", re.sub(r"\[(\d+).*", r"\1", name))
        if "/" in text:
            for match in HOME.finditer(text):
                self.aliases.know("user", match[1] or match[2])
        if "@" in text:
            for match in AT.finditer(text):
                if match[3] or self.aliases.is_known(match[2]):
                    self.aliases.know("user", match[1])

    def _keep_references(self, runs: Sequence[Run]) -> None:
        """By what a run names its arms and cases: one to one, even where two arms become alike."""
        arms = dict.fromkeys(arm.id for run in runs for arm in run.plan.arms)
        taken: Counter[str] = Counter()
        for arm in arms:
            alias = self._text(arm)
            taken[alias] += 1
            self.aliases.set_exact(arm, alias if taken[alias] == 1 else f"{alias}#{taken[alias]}")
        for run in runs:
            for entry in run.plan.cases:
                self.aliases.set_exact(entry.case.key, self._walk(entry.case, "", "").key)
        self._shown.clear()

    def _walk(self, value: Any, key: str, above: str) -> Any:
        """The same value with every text in it replaced, whatever it is made of.

        Args:
            value: maybe an object of fields, a dictionary, a list, a number.
            key: under which it stands in a dictionary, "" for none.
            above: the key of that dictionary.
        """
        if isinstance(value, str):
            if above in _VARIABLES and value != HIDDEN and is_secret(key, value):
                return HIDDEN
            kind = kind_of_key(key, above)
            return self._text(value) if kind is None else self._named(kind, value, key)
        if isinstance(value, int) and not isinstance(value, bool):
            kind = kind_of_key(key, above)
            return self.aliases.named(kind, str(value)) if kind in ("job", "id") else value
        if isinstance(value, Mapping):
            return self._walk_entries(value, key)
        if isinstance(value, list | tuple):
            if key == "command":
                return self.command(value)
            return type(value)(self._walk(entry, key, above) for entry in value)
        if isinstance(value, Path):
            return Path(self.aliases.named("path", str(value)))
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **self._changes(value, value.__struct_fields__))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = self._changes(value, [field.name for field in dataclasses.fields(value) if field.init])
            return dataclasses.replace(value, **changes) if changes else value
        return value

    def _text(self, text: str) -> str:
        """A text without names, and without what looks like a secret: nobody has looked at a run from
        elsewhere, or at what was typed into a label."""
        shown = self._shown.get(text)
        if shown is None:
            shown = self.aliases.text(text)
            if looks_secret(self._unknown(shown)):
                shown = self._without_secrets(shown)
            self._shown[text] = shown
        return shown

    def _without_secrets(self, text: str) -> str:
        words = re.split(r"(\s+)", text)
        for place, new in zip(range(0, len(words), 2), without_secrets(words[::2]), strict=True):
            if words[place] != new and words[place] not in self._commits:
                if len(words[place]) >= _SHORTEST_SECRET:
                    self._secrets.add(words[place])
                words[place] = new
        rest = "".join(words)
        # One may go over several words.
        return HIDDEN if looks_secret(self._unknown(rest)) else rest

    def _unknown(self, text: str) -> str:
        """A text without what only looks like a secret: one left out before, the commit of torch's build."""
        for commit in self._commits:
            text = text.replace(commit, "")
        return _LEFT_OUT.sub(lambda match: "=," if match[1] else "-", text)

    def _named(self, kind: str, text: str, key: str) -> str:
        # A host that is called localhost is a host by its own name, and nobody's address elsewhere.
        return self.aliases.host(text) if (kind, key) == ("host", "name") else self.aliases.named(kind, text)

    def _walk_entries(self, entries: Mapping[Any, Any], key: str) -> dict[Any, Any]:
        walked: dict[Any, Any] = {}
        for name, under, below in _entries(entries, key):
            new = self._walk(name, "", "")
            while new in walked and isinstance(new, str):
                new = f"{new}#2"
            walked[new] = self._walk(below, under, key)
        return walked

    def _changes(self, value: Any, names: Iterable[str]) -> dict[str, Any]:
        """The fields of an object that change; the program's own names of fields say nothing of a text."""
        changes = {}
        for name in names:
            before = getattr(value, name)
            after = self._walk(before, "", "") if _may_hold_text(before) else before
            if after is not before and not (isinstance(before, str) and before == after):
                changes[name] = after
        return changes

    def command(self, words: Sequence[Any]) -> list[str]:
        """A command line: arguments that are paths become path-1, secrets are left out."""
        hidden = without_secrets([str(word) for word in words])
        files = set(_operands(hidden))
        shown = [self._text(hidden[0].rpartition("/")[2])] if hidden else []
        for before, word in itertools.pairwise(hidden):
            name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
            is_path = before in _PATH_OPTIONS or name in _PATH_OPTIONS or word in files
            is_path = is_path or ("/" in value and not re.search(r"[<>=\s]|://", value))
            if is_path and value and not value.startswith("-"):
                shown.append(f"{name}{equals}{self.aliases.named('path', value)}")
            else:
                shown.append(self._text(word))
        return shown


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a run, or in anything made of fields, dictionaries and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Path):
        yield str(value.absolute())
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from texts_of(key)
            yield from texts_of(below)
    elif isinstance(value, list | tuple):
        for entry in value:
            if _may_hold_text(entry):
                yield from texts_of(entry)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from texts_of(getattr(value, name))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from texts_of(getattr(value, field.name))


def _may_hold_text(value: Any) -> bool:
    """Whether it is worth looking into: visits and turns are tuples of numbers, thousands of them."""
    if isinstance(value, list | tuple):
        return any(not isinstance(entry, int | float) for entry in value)
    return not isinstance(value, int | float)


def _entries(entries: Mapping[Any, Any], key: str) -> Iterator[tuple[Any, str, Any]]:
    """Name, the key that tells what stands there, and value.

    A difference tells under ``what`` of what its values are, each of which stands under ``value``.
    """
    what = str(entries.get("what") or "").rpartition(".")[2]
    for name, below in entries.items():
        told = {"value": key, "values": what, "base": what, "new": what}.get(name)
        yield name, told or str(name), below


def _files(run: Run) -> Iterator[str]:
    """Names of the files that a run was read from, as they were told and as they were typed."""
    for entry in (run.meta.get("imported") or {}).get("files") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("file"), str):
            yield entry["file"].strip()
    command = run.meta.get("command")
    yield from _operands(
        [str(word) for word in command] if isinstance(command, list) else str(command).split()
    )


def _operands(words: Sequence[str]) -> Iterator[str]:
    """The files in a command line of ``import``; none in any other."""
    if "import" not in words[1:4]:  # ncclbench import, python -m ncclbench import
        return
    start = words.index("import", 1)
    for before, word in itertools.pairwise(words[start:]):
        is_value = before.startswith("-") and before != "-" and "=" not in before and before not in _FLAGS
        if not word.startswith("-") and not is_value and word not in ("", HIDDEN):
            yield word


def _hosts(run: Run) -> Iterator[str]:
    """The hosts of a run in its order."""
    for host in (run.meta.get("environment") or {}).get("hosts") or ():
        if isinstance(host.get("name"), str) and host["name"].strip():
            yield host["name"]
