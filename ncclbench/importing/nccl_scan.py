"""From the lines of one writer to drafts: what each invocation printed, gathered and not yet judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from ncclbench.importing import nccl_words as words
from ncclbench.importing.lines import clean
from ncclbench.importing.nccl_draft import Budget, Draft, Stage, Tokens
from ncclbench.importing.nccl_layout import ITEMSIZES, parse_header
from ncclbench.store.printed import OverRanks

_MOST_DEVICES = 1 << 17
_MOST_VARIABLES = 200
# No tool prints more digits.
_LONGEST_NUMBER = 40
# Commands may be long, other lines of the tools are not.
LONGEST = 1024
# A row that debug output broke in two goes on within so many lines.
_BREAK = 200
_LONGEST_COMMAND = 8192

_TYPES = frozenset(ITEMSIZES)
_WORDS = words.KEYWORDS | _TYPES
_INFO = re.compile(r"(?<![A-Za-z])[A-Za-z][\w.-]{0,99}:\d+:\d+ (?:\[\d+\] |NCCL )")
_ENDS = frozenset("0123456789A")
_TAIL = re.compile(r"(?:-?\d[\d.e+-]*|N/A|inf|nan)", re.ASCII)
_MPI = re.compile(r"\b(?:mpirun|mpiexec)\b")
_NP = re.compile(r"\s-(?:np|n|c) +(\d{1,6})\b")
_NAMED_RANKS = re.compile(r"\bnccl-tests?-(\d{1,5})-")
_LAUNCHER = re.compile(r"\b(?:mpirun|mpiexec|srun)\b")

# What a line is to a table: nothing, what looks like its row, or a line that nothing else looks like.
Weight = Literal[0, 1, 3]


def may_matter(raw: str, scanner: Scanner) -> bool:
    """Whether a line is worth a second look: most lines of a large log are debug output, and are not."""
    if scanner.expects_more:
        return True
    place = raw.find(" NCCL INFO ")
    if place >= 0:
        # It may have been printed into a row, or tell what is worth keeping.
        started = place > 30 and not _TYPES.isdisjoint(raw[:place].split())
        return started or "NCCL version" in raw or "set by environment" in raw
    tokens = raw.split()
    return (
        not _WORDS.isdisjoint(tokens)
        or (scanner.in_table and _is_damaged(tokens))
        or "_perf" in raw
        or "CCL_" in raw
        or "nccl-test" in raw
    )


class Scanner:
    """Reads the lines of one writer one after the other."""

    def __init__(self, budget: Budget) -> None:
        self.drafts: list[Draft] = []
        self._budget = budget
        self._pending: tuple[int, Tokens] | None = None
        self._before = Draft(1)
        self._places: tuple[bool, ...] = ()
        # A command that goes on in the next line; what commands ask of each collective, and of which a table
        # has come since.
        self._command_so_far = ""
        self._asked: dict[str, set[OverRanks]] = {}
        self._answered: set[str] = set()

    @property
    def expects_more(self) -> bool:
        """Whether the next line may be the rest of the last one."""
        return self._pending is not None or bool(self._command_so_far)

    def line(self, number: int, raw: str, text: str) -> Weight:
        """Take in one line, as it stands and without prefixes; how sure it is that a table wrote it."""
        if self._pending is not None and self._continues(number, text):
            return 0
        tokens = text.split()
        if not tokens:
            return 0
        if self._row(number, text, tokens):
            return 1
        if self._table(number, text, tokens):
            return 3
        return self.around(number, text, raw)

    def flush(self) -> None:
        """The last row, if it was cut short."""
        if self._pending is not None:
            number, tokens = self._pending
            self._pending = None
            self._add(number, tokens)
        if not self.drafts and self._before.failure is not None:
            self.drafts.append(self._before)

    def _draft(self, number: int, stage: Stage, *, again: bool = False) -> Draft:
        """The invocation that a line of this stage belongs to: the last one, or another."""
        last = self.drafts[-1] if self.drafts else None
        if last is None or stage < last.stage or (stage == last.stage and again):
            if not self._budget.sections:
                return last or self._before
            self._budget.sections -= 1
            before, self._before = self._before, Draft(number)
            before.line = number
            before.asked = {op: set(asked) for op, asked in self._asked.items()}
            # Where two tests write into each other, the second header comes within the first one's output.
            before.mixed = last.mixed if last is not None and last.stage < Stage.FOOTER else None
            self.drafts.append(before)
            last = before
        last.stage = max(last.stage, stage)
        return last

    @property
    def in_table(self) -> bool:
        """Whether a header has come and no footer."""
        return bool(self.drafts) and Stage.HEADER <= self.drafts[-1].stage <= Stage.ROWS

    # Rows.

    def _cells(self, tokens: Tokens) -> Tokens | None:
        """The cells of a row; of a damaged one, too, where rows are expected; None if it is none."""
        cells = _aligned(tokens)
        return tokens if cells is None and self.in_table and _is_damaged(tokens) else cells

    def _row(self, number: int, text: str, tokens: Tokens) -> bool:
        if tokens[0][0] == "#":
            return False
        glued = _INFO.search(text) if "NCCL" in text else None
        whole = True
        if glued is not None and glued.start() > 0:
            first = text[: glued.start()].split()
            if self._cells(first) is not None:
                tokens, whole = first, False
        cells = self._cells(tokens)
        if cells is None:
            return False
        self.flush()
        if not whole or len(cells) < 9:
            self._pending = (number, cells)
        else:
            self._add(number, cells)
        return True

    def _continues(self, number: int, text: str) -> bool:
        """Whether the line is the rest of the pending row, or debug output within it."""
        assert self._pending is not None
        start, cells = self._pending
        tokens = text.split()
        if tokens and all(_TAIL.fullmatch(token) for token in tokens) and len(cells) + len(tokens) <= 24:
            self._pending = None
            draft = self._add(start, [*cells, *tokens])
            draft.joined.add(start)
            return True
        if number - start > _BREAK or (tokens and _INFO.search(text) is None):
            self.flush()
            return False
        return "NCCL INFO" in text

    def _add(self, number: int, cells: Tokens) -> Draft:
        draft = self._draft(number, Stage.ROWS)
        if self._budget.rows:
            self._budget.rows -= 1
            draft.rows.append((number, cells))
        else:
            if not self._budget.rows_left_out:
                draft.tell(number, "more rows than are read: those from here on are left out")
            self._budget.rows_left_out += 1
        return draft

    # The table's header and footer.

    def _table(self, number: int, text: str, tokens: Tokens) -> bool:
        lowered = [token.lstrip("#") for token in tokens]
        if ("size" in lowered or "bytes" in lowered) and ("busbw" in lowered or "algbw" in lowered):
            glued = _INFO.search(text)
            columns = parse_header(text[: glued.start()].split() if glued else tokens, self._places)
            draft = self._draft(number, Stage.HEADER, again=bool(self.drafts and self.drafts[-1].columns))
            self._places = ()
            draft.columns = columns
            draft.asked = {op: set(asked) for op, asked in self._asked.items()}
            self._answered = set(self._asked)
            if columns is None:
                draft.tell(number, "header is damaged: columns are decided by the rows")
            return True
        if "in-place" in tokens or "out-of-place" in tokens:
            self._places = tuple(word == "in-place" for word in tokens if word.endswith("-place"))
            return True
        average = words.average_GBs(text)
        wrong = words.out_of_bounds(text)
        if average is None and wrong is None:
            return False
        last = self.drafts[-1] if self.drafts else None
        again = last is not None and (last.average if average is not None else last.out_of_bounds) is not None
        draft = self._draft(number, Stage.FOOTER, again=again)
        if average is not None:
            draft.average, draft.average_line = average, number
        else:
            draft.out_of_bounds = wrong
        return True

    # What stands around the table.

    def around(self, number: int, text: str, raw: str) -> Weight:
        """Take in a line that is not of a table itself."""
        for read in (self._banner, self._versions, self._settings, self._device):
            if read(number, text):
                return 0 if read == self._versions else 3
        current = self.drafts[-1] if self.drafts else self._before
        running = bool(self.drafts) and current.stage < Stage.FOOTER
        reason = words.failure(text)
        if reason is not None:
            current.failure = current.failure or reason
            return 0
        told = words.note(text)
        if told is not None:
            (current if running else self._before).tell(number, told)
            return 0
        if "asterisks indicate errors" in text and self.drafts:
            current.tool = "rccl-tests"
        if "Blocking Enabled" in text and running:
            current.blocking = True
        if running and words.is_elision(text):
            current.elided = True
        self._command(current if running and current.stage < Stage.HEADER else self._before, raw)
        return 0

    def _command(self, draft: Draft, text: str) -> None:
        """A line that may be a command: what it sets, runs and asks for; it may go on after a backslash."""
        so_far, self._command_so_far = self._command_so_far, ""
        text = f"{so_far} {text.rstrip()}"[-_LONGEST_COMMAND:] if so_far else text.rstrip()
        if text.endswith("\\") and "NCCL INFO" not in text:
            self._command_so_far = text[:-1]
            return
        if len(draft.environment) < _MOST_VARIABLES:
            draft.environment.update(words.variables(text))
        if "NCCL INFO" in text:
            return
        for op, over_ranks in words.commands(text):
            if len(draft.mentioned) < _MOST_VARIABLES:
                draft.mentioned.append(op)
            if op in self._answered:
                self._answered.remove(op)
                self._asked[op] = set()
            self._asked.setdefault(op, set()).add(over_ranks)
        draft.launched = draft.launched or _LAUNCHER.search(text) is not None
        mpi = _MPI.search(text)
        said = (_NP.search(text, mpi.end()) if mpi else None) or _NAMED_RANKS.search(text)
        if said is not None:
            draft.said_ranks = int(said[1])

    def _banner(self, number: int, text: str) -> bool:
        found = words.banner(text)
        if found is None:
            return False
        word, program = found
        if word == "starting":
            draft = self._draft(number, Stage.STARTING, again=True)
            draft.banner_op = words.program_op(program)
        elif self.drafts:
            draft = self.drafts[-1]
            op = words.program_op(program)
            if draft.banner_op not in (None, op):
                draft.tell(number, f"began as {draft.banner_op} and concluded as {program}")
            draft.banner_op = draft.banner_op or op
            draft.stage, draft.concluded = Stage.CONCLUDED, True
        return True

    def _versions(self, number: int, text: str) -> bool:
        tests = words.tests_version(text)
        if tests is not None:
            # rccl-tests prints its version after the parameters, nccl-tests before all.
            last = self.drafts[-1] if self.drafts else None
            late = last is not None and last.version is None and Stage.STARTING <= last.stage <= Stage.DEVICES
            draft = last if late and last is not None else self._draft(number, Stage.VERSION, again=True)
            draft.tool = f"{tests[0]}-tests"
            draft.version = tests[1]
            draft.nccl = draft.nccl or tests[2]
            return True
        library = words.nccl_version(text)
        runtime = words.runtime_version(text)
        if library is None and runtime is None:
            return False
        current = self.drafts[-1] if self.drafts and self.drafts[-1].stage < Stage.FOOTER else self._before
        if library is not None:
            current.nccl = library[1]
            current.runtime = library[2] or current.runtime
            if library[0] == "RCCL":
                current.tool = "rccl-tests"
        else:
            current.runtime = runtime
            current.tool = "rccl-tests"
        return True

    def _settings(self, number: int, text: str) -> bool:
        found = words.settings(text)
        if not found:
            return False
        self._draft(number, Stage.SETTINGS, again=True).settings = found
        return True

    def _device(self, number: int, text: str) -> bool:
        if text.strip(" #") == "Using devices":
            self._draft(number, Stage.DEVICES, again=bool(self.drafts and self.drafts[-1].devices))
            return True
        found = words.device(text)
        if found is None:
            return False
        line, group = found
        # Within a table it is a stray line, not the beginning of another test.
        draft = self.drafts[-1] if self.in_table else self._draft(number, Stage.DEVICES)
        key = (line.rank, group)
        first = draft.listed.get(key)
        if first is None and len(draft.listed) < _MOST_DEVICES:
            draft.listed[key] = line
            draft.devices.append(line)
            draft.groups[group] += 1
        elif first is not None and first != line:
            draft.tell(number, f"rank {line.rank} is listed twice")
            draft.listed_twice.add(key)
            if draft.mixed is not None:
                return True
            if first.host != line.host:
                draft.mixed = f"rank {line.rank} is listed on {first.host} and on {line.host}"
            elif len(draft.listed_twice) > 1:
                draft.mixed = "ranks are listed on two devices each"
        return True


def _aligned(tokens: Tokens) -> Tokens | None:
    """The cells of a row from its size on, whatever stands before it; None if it is none."""
    for place, token in enumerate(tokens[:10]):
        if token in _TYPES and place >= 2 and tokens[place - 1].isdigit() and tokens[place - 2].isdigit():
            return tokens[place - 2 :]
    return None


def _is_damaged(tokens: Tokens) -> bool:
    """Whether these are cells of a row that cannot be read: rejected with a reason, not passed over."""
    if any(len(token) > _LONGEST_NUMBER and token.isdigit() for token in tokens):
        return True  # which may be all that is read of a line
    # The last two are looked at first: few lines of other output end in numbers.
    if not 8 <= len(tokens) <= 30 or tokens[-2][-1] not in _ENDS or tokens[-1][-1] not in _ENDS:
        return False
    filled = sum(1 for token in tokens if _TAIL.fullmatch(token))
    return filled >= 5 and filled >= len(tokens) - 5


def looks_like_rows(text: str) -> Iterator[Tokens]:
    """Lines of a text that look like rows."""
    for line in text.splitlines():
        cells = _aligned(clean(line[:4096]).split())
        if cells is not None and len(cells) >= 8:
            yield cells
