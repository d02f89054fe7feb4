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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ncclbench.environment.variables import without_secrets
from ncclbench.errors import MeasurementError
from ncclbench.report.aliases import Aliases
from ncclbench.report.identifying import AT, HOME, kind_of_key
from ncclbench.store.model import Run

if TYPE_CHECKING:
    from ncclbench.compare.sides import Side

# Options of ncclbench whose value is a path, though it may hold no slash.
_PATH_OPTIONS = ("--out", "--resume", "--csv", "--against", "--base", "--new", "--compare-with")
# Shorter numbers cannot be told from others in a text.
_SHORTEST_JOB = 4


class Redactor:
    """Learns names from runs and gives the runs without them.

    Attributes:
        runs: the runs without names, in the order given; samples are shared with the originals.
        aliases: what was replaced by what.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        """Learn from the runs, in this order: the first host of the first one is node-1."""
        self.aliases = Aliases()
        self._learn_owner()
        for run in runs:
            self._learn(run.meta, "", "")
        for run in runs:
            for text in texts_of(run):
                self._learn_text(text)
        folders = [self.aliases.know_run(run.folder) for run in runs]
        for run in runs:
            for host in _hosts(run):
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

    def side(self, side: Side) -> Side:
        """A side of a comparison, of runs that were given, with the runs without names."""
        label, runs = side.label, [self._given[id(run)] for run in side.runs]
        for run, shown in zip(side.runs, runs, strict=True):
            # A side is called by its run's label, by its folder where there is none, or as it was typed.
            for name in (str(run.folder), *([] if run.meta.get("label") else [run.folder.name])):
                label = re.sub(rf"(?<![\w/.-]){re.escape(name)}/?(?![\w-])", shown.folder.name, label)
        arm = None if side.arm is None else self.aliases.text(side.arm)
        return dataclasses.replace(side, runs=runs, arm=arm, label=self.aliases.text(label))

    def check(self, texts: Iterable[str]) -> None:
        """Look for every name that was replaced in what is about to be written.

        Raises:
            MeasurementError: one is there; the line does not say which.
        """
        for text in texts:
            if (kind := self.aliases.leak(text)) is not None:
                raise MeasurementError(
                    f"the redacted output would still tell the name of a {kind}, so it was not written: "
                    "this is a fault in ncclbench"
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
            if kind == "job" and len(str(value)) >= _SHORTEST_JOB:
                self.aliases.know(kind, str(value))
            elif kind in ("host", "user", "site") and isinstance(value, str):
                for name in re.split(r"[,\s]+", value):
                    host, _, port = name.rpartition(":")
                    self.aliases.know(kind, host if host and port.isdecimal() else name)

    def _learn_text(self, text: str) -> None:
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
            alias = self.aliases.text(arm)
            taken[alias] += 1
            self.aliases.set_exact(arm, alias if taken[alias] == 1 else f"{alias}#{taken[alias]}")
        for run in runs:
            for entry in run.plan.cases:
                self.aliases.set_exact(entry.case.key, self._walk(entry.case, "", "").key)

    def _walk(self, value: Any, key: str, above: str) -> Any:
        """The same value with every text in it replaced, whatever it is made of.

        Args:
            value: maybe an object of fields, a dictionary, a list, a number.
            key: under which it stands in a dictionary, "" for none.
            above: the key of that dictionary.
        """
        if isinstance(value, str):
            kind = kind_of_key(key, above)
            return self.aliases.text(value) if kind is None else self._named(kind, value, key)
        if isinstance(value, int) and not isinstance(value, bool):
            kind = kind_of_key(key, above)
            return self.aliases.named(kind, str(value)) if kind in ("job", "id") else value
        if isinstance(value, Mapping):
            return self._walk_entries(value, key)
        if isinstance(value, list | tuple):
            if key == "command":
                return self._command(value)
            return type(value)(self._walk(entry, key, above) for entry in value)
        if isinstance(value, Path):
            return Path(self.aliases.named("path", str(value)))
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **self._changes(value, value.__struct_fields__))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = self._changes(value, [field.name for field in dataclasses.fields(value) if field.init])
            return dataclasses.replace(value, **changes) if changes else value
        return value

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

    def _command(self, words: Sequence[Any]) -> list[str]:
        """A command line: arguments that are paths become path-1, secrets are left out."""
        hidden = without_secrets([str(word) for word in words])
        shown = [self.aliases.text(hidden[0].rpartition("/")[2])] if hidden else []
        for before, word in itertools.pairwise(hidden):
            name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
            is_path = before in _PATH_OPTIONS or name in _PATH_OPTIONS
            is_path = is_path or ("/" in value and not re.search(r"[<>=\s]|://", value))
            if is_path and value and not value.startswith("-"):
                shown.append(f"{name}{equals}{self.aliases.named('path', value)}")
            else:
                shown.append(self.aliases.text(word))
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


def _hosts(run: Run) -> Iterator[str]:
    """The hosts of a run in its order."""
    for host in (run.meta.get("environment") or {}).get("hosts") or ():
        if isinstance(host.get("name"), str) and host["name"].strip():
            yield host["name"]
