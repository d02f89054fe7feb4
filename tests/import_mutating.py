"""Damage done to logs on purpose, seeded: what tickets, mails and crashes do to them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from mutating import flip

Lines = list[str]
Damage = Callable[[random.Random, Lines], Lines]

_ROW = re.compile(r"\d+\s+\d+\s+(?:float|half|double|int|uint|char|bfloat)")
_INFO = "node-b:421:421 [3] NCCL INFO comm 0x7f rank 3 nranks 8 cudaDev 3 - Init COMPLETE"


def _rows(lines: Lines) -> list[int]:
    return [number for number, line in enumerate(lines) if _ROW.search(line)]


def _some(rng: random.Random, lines: Lines) -> list[int]:
    """A few lines, rows rather than others."""
    rows = _rows(lines)
    pool = rows if rows and rng.random() < 0.8 else list(range(len(lines)))
    return rng.sample(pool, min(len(pool), rng.randint(1, 3))) if pool else []


def cut_end(rng: random.Random, lines: Lines) -> Lines:
    text = "\n".join(lines)
    return text[: rng.randrange(len(text) + 1)].split("\n")


def cut_start(rng: random.Random, lines: Lines) -> Lines:
    text = "\n".join(lines)
    return text[rng.randrange(len(text) + 1) :].split("\n")


def cut_lines(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        line = lines[number]
        place = rng.randrange(len(line) + 1)
        lines[number] = line[:place] if rng.random() < 0.7 else line[place:]
    return lines


def drop_lines(rng: random.Random, lines: Lines) -> Lines:
    return [line for line in lines if rng.random() > 0.2]


def drop_headers(rng: random.Random, lines: Lines) -> Lines:
    return [line for line in lines if "algbw" not in line]


def shuffle(rng: random.Random, lines: Lines) -> Lines:
    rng.shuffle(lines)
    return lines


def repeat_lines(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        lines.insert(rng.randrange(len(lines) + 1), lines[number])
    return lines


def flip_characters(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        line = lines[number]
        if line:
            place = rng.randrange(len(line))
            lines[number] = line[:place] + chr(rng.randrange(1, 256)) + line[place + 1 :]
    return lines


def flip_digits(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        line = lines[number]
        digits = [place for place, letter in enumerate(line) if letter.isdigit()]
        if digits:
            place = rng.choice(digits)
            lines[number] = line[:place] + rng.choice("0123456789") + line[place + 1 :]
    return lines


def drop_characters(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        line = lines[number]
        if line:
            place = rng.randrange(len(line))
            lines[number] = line[:place] + line[place + rng.randint(1, 6) :]
    return lines


def swap_cells(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        cells = lines[number].split()
        if len(cells) > 3:
            one, other = rng.sample(range(len(cells)), 2)
            cells[one], cells[other] = cells[other], cells[one]
            lines[number] = "  ".join(cells)
    return lines


def drop_cells(rng: random.Random, lines: Lines) -> Lines:
    """One column of the rows, with its name or without."""
    place = rng.randrange(13)
    named = rng.random() < 0.5
    for number, line in enumerate(lines):
        cells = line.split()
        if _ROW.search(line) and len(cells) > place:
            lines[number] = "  ".join(cells[:place] + cells[place + 1 :])
        elif named and "algbw" in cells and len(cells) > place + 1:
            lines[number] = "  ".join(cells[: place + 1] + cells[place + 2 :])
    return lines


def join_lines(rng: random.Random, lines: Lines) -> Lines:
    for number in sorted(_some(rng, lines), reverse=True):
        if number + 1 < len(lines):
            lines[number : number + 2] = [lines[number] + rng.choice(["", " "]) + lines[number + 1]]
    return lines


def break_lines(rng: random.Random, lines: Lines) -> Lines:
    for number in sorted(_some(rng, lines), reverse=True):
        place = rng.randrange(len(lines[number]) + 1)
        more = [_INFO] if rng.random() < 0.3 else []
        lines[number : number + 1] = [lines[number][:place], *more, lines[number][place:]]
    return lines


def glue_output(rng: random.Random, lines: Lines) -> Lines:
    for number in sorted(_some(rng, lines), reverse=True):
        place = rng.randrange(len(lines[number]) + 1)
        lines[number : number + 1] = [lines[number][:place] + _INFO, lines[number][place:]]
    return lines


_PREFIXES = (
    "[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", "[0] ", "node01: ", "2024-05-01T12:00:00.123Z ", "> ",
    "[pod/launcher/main] ", "\x1b[32m", "worker-0  | ",
)  # fmt: skip


def add_prefixes(rng: random.Random, lines: Lines) -> Lines:
    prefix = rng.choice(_PREFIXES)
    return [prefix + line if rng.random() < 0.95 else line for line in lines]


def tag_inside(rng: random.Random, lines: Lines) -> Lines:
    for number in _some(rng, lines):
        line = lines[number]
        place = rng.randrange(len(line) + 1)
        lines[number] = line[:place] + "[1,0]<stdout>:" + line[place:]
    return lines


_NOISE = (
    "x" * 100_000, "".join(map(chr, range(256))), "\0" * 5000, "1 " * 30_000, "ncclnccl" * 900, _INFO, "...",
    "0.00 " * 13, "8 2 float sum -1", "# Rank", "[1,0]<stdout>:" * 500, "\x1b[" * 3000,
)  # fmt: skip


def add_noise(rng: random.Random, lines: Lines) -> Lines:
    for _ in range(rng.randint(1, 6)):
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(_NOISE))
    return lines


def lose_marks(rng: random.Random, lines: Lines) -> Lines:
    return [line.replace("#", "") for line in lines]


def respace(rng: random.Random, lines: Lines) -> Lines:
    gap = rng.choice([" ", "\t", "   "])
    return [gap.join(line.split()) for line in lines]


def say_again(rng: random.Random, lines: Lines) -> Lines:
    return lines + lines


DAMAGES: tuple[Damage, ...] = (
    cut_end, cut_start, cut_lines, drop_lines, drop_headers, shuffle, repeat_lines, flip_characters,
    flip_digits, drop_characters, swap_cells, drop_cells, join_lines, break_lines, glue_output, add_prefixes,
    tag_inside, add_noise, lose_marks, respace, say_again,
)  # fmt: skip


def damaged(seed: int, text: str) -> tuple[str, str]:
    """(names of the damages, the damaged text)."""
    rng = random.Random(seed)
    lines = text.split("\n")
    chosen = rng.choices(DAMAGES, k=rng.choice([1, 1, 1, 2, 3]))
    for damage in chosen:
        lines = damage(rng, lines)
    return "+".join(damage.__name__ for damage in chosen), "\n".join(lines)


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    return flip(rng, content, most=30)


def insert_binary(rng: random.Random, content: bytes) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.randbytes(rng.randint(1, 5000)) + content[place:]


def insert_long_line(rng: random.Random, content: bytes) -> bytes:
    """What a bomb unpacks to: two megabytes without an end of line."""
    place = rng.randrange(len(content) + 1)
    piece = rng.choice((b"1 ", b"A", b"\0", b"[1,0]<stdout>:", b"8 2 float sum -1 "))
    return content[:place] + piece * (2_000_000 // len(piece)) + content[place:]


def lose_bytes(rng: random.Random, content: bytes) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + content[place + rng.randint(1, 2000) :]


_OF_BYTES = (flip_bits, flip_bits, insert_binary, lose_bytes, insert_long_line)


def damaged_bytes(seed: int, text: str) -> tuple[str, bytes]:
    """(names of the damages, the damaged file): most as ``damaged`` makes them, a third as bytes, too."""
    names, changed = damaged(seed, text)
    rng = random.Random(-1 - seed)
    content = changed.encode("utf-8", "replace")
    if rng.random() < 1 / 3:
        damage = rng.choice(_OF_BYTES)
        names, content = f"{names}+{damage.__name__}", damage(rng, content)
    return names, content
