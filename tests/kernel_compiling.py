"""Kernels compiled for GPUs that are not there, and what the machine code says. As a script: a table of it.

numba makes PTX, nvJitLink makes a cubin of it as it would on a GPU, and cuobjdump, which comes with
triton, prints its instructions.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cuda.bindings import nvjitlink
from ncclbench.kernels.kind import MAX_THREADS, Shape
from ncclbench.kernels.kinds import KINDS
from numba import cuda
from numba.cuda import types
from numba.cuda.typing.typeof import typeof

HOPPER, BLACKWELL = (9, 0), (10, 0)
TARGETS = (HOPPER, BLACKWELL)
FMAS = ("FFMA", "DFMA")

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+)([^;]*);", re.MULTILINE)


# Address, name without its qualifiers, operands.
Instruction = tuple[int, str, str]


@dataclass(frozen=True)
class Machine:
    """A kernel's machine code.

    Attributes:
        ptx: what numba made.
        registers: of a thread.
        spill_nbytes, stack_nbytes: of a thread, in local memory.
        shared_nbytes: of a block.
        code: instructions by name.
        order: instructions of the loop that does the work, by name: of the loops without one inside, the
            one with most FMAs.
        fma_targets: registers that its FMAs write.
    """

    ptx: str
    registers: int
    spill_nbytes: int
    stack_nbytes: int
    shared_nbytes: int
    code: Counter[str]
    order: tuple[str, ...]
    fma_targets: int

    @property
    def loop(self) -> Counter[str]:
        """Instructions of the working loop by name."""
        return Counter(self.order)

    def share(self, *names: str) -> float:
        """Of the working loop's instructions, the part with these names."""
        return sum(self.loop[name] for name in names) / self.loop.total()


def to_ptx(kind: str, target: tuple[int, int], threads: int, launch_bounds: Any) -> str:
    """As CudaEngine compiles it: argument types come from the arguments."""
    entry = KINDS[kind]
    shape = Shape(1, threads, 1)
    data = entry.problem(shape, entry.defaults["cuda"].elements and shape.all_threads, 0)
    arguments: tuple[Any, ...] = (*data.inputs, data.output, *data.numbers(0), np.int32(1))
    ptx, _ = cuda.compile(
        entry.on_cuda(threads),
        types.void(*map(typeof, arguments)),
        device=False,
        abi="numba",
        cc=target,
        output="ptx",
        launch_bounds=launch_bounds,
    )
    return str(ptx)


def to_cubin(ptx: str, target: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin, and what ptxas says of it."""
    options = [f"-arch=sm_{target[0]}{target[1]}", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        code = ptx.encode()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), "kernel")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin), log.decode()


def disassembled(cubin: bytes) -> list[Instruction]:
    """All instructions, as cuobjdump prints them."""
    spec = find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    cuobjdump = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run(
            [cuobjdump, "-sass", file], capture_output=True, text=True, timeout=60, check=True
        )
    return [(int(address, 16), name, rest) for address, name, rest in _INSTRUCTION.findall(done.stdout)]


def innermost_loops(code: list[Instruction]) -> list[list[Instruction]]:
    """The instructions from each jump's target back to the jump, where no other such jump lies between."""
    jumps = []
    for address, name, rest in code:
        to = re.findall(r"0x([0-9a-f]+)", rest)
        if name == "BRA" and to and int(to[-1], 16) < address:
            jumps.append((int(to[-1], 16), address))
    inner = [one for one in jumps if not any(other != one and _within(other, one) for other in jumps)]
    return [[one for one in code if begin <= one[0] <= end] for begin, end in inner]


def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def compiled(
    kind: str, target: tuple[int, int], threads: int = MAX_THREADS, launch_bounds: Any = MAX_THREADS
) -> Machine:
    """The machine code of a kind for a compute capability; the launch bounds are CudaEngine's."""
    ptx = to_ptx(kind, target, threads, launch_bounds)
    cubin, log = to_cubin(ptx, target)
    code = disassembled(cubin)
    loop = max(innermost_loops(code), key=lambda loop: sum(name in FMAS for _, name, _ in loop))
    return Machine(
        ptx,
        registers=_number(r"Used (\d+) registers", log),
        spill_nbytes=_number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        stack_nbytes=_number(r"(\d+) bytes stack frame", log),
        shared_nbytes=int((re.findall(r"(\d+) bytes smem", log) or ["0"])[0]),
        code=Counter(name for _, name, _ in code),
        order=tuple(name for _, name, _ in loop),
        fma_targets=len({rest.split(",")[0] for _, name, rest in loop if name in FMAS}),
    )


def _number(pattern: str, log: str) -> int:
    (found,) = re.findall(pattern, log)
    return int(found)


def table(machine: Callable[[str, tuple[int, int]], Machine] = compiled) -> str:
    """What docs/kernels.md shows, in Markdown."""
    lines = [
        "| kernel | for | registers | spilled | shared memory | working loop |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for target in TARGETS:
            found = machine(kind, target)
            names = ("FFMA", "DFMA", "LDG", "STG", "LDS")
            parts = ", ".join(f"{found.loop[name]} {name}" for name in names if found.loop[name])
            lines.append(
                f"| {kind} | sm_{target[0]}{target[1]} | {found.registers} | {found.spill_nbytes} B | "
                f"{found.shared_nbytes:,} B | {parts} of {found.loop.total()} instructions |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
