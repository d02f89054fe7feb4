"""The CUDA kernels' machine code for Hopper and Blackwell, made without a GPU: bounds, not exact figures."""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path

import pytest
from kernel_compiling import HOPPER, TARGETS, compiled, table
from ncclbench.kernels import KINDS
from ncclbench.kernels.fma import CHAINS

machine = functools.cache(compiled)
# B300 and the workstation boards: compiled for, beside those that docs/kernels.md shows.
OTHERS = ((10, 3), (12, 0))
TARGET_NAMES = [f"sm_{major}{minor}" for major, minor in TARGETS]
every_target = pytest.mark.parametrize("target", TARGETS, ids=TARGET_NAMES)
every_kind = pytest.mark.parametrize("kind", KINDS)
ROOT = Path(__file__).resolve().parent.parent


@every_target
@every_kind
def test_a_block_of_1024_threads_has_a_multiprocessor_for_itself(kind: str, target: tuple[int, int]) -> None:
    """It has 65,536 registers: with over 32 a thread two blocks do not fit, with over 64 not even one."""
    assert 32 < machine(kind, target).registers <= 64


@every_target
@every_kind
def test_nothing_goes_through_local_memory(kind: str, target: tuple[int, int]) -> None:
    found = machine(kind, target)
    assert (found.spill_nbytes, found.stack_nbytes) == (0, 0)
    assert not found.code.keys() & {"LDL", "STL"}


@every_target
@pytest.mark.parametrize("threads", KINDS["gemm"].thread_counts)
def test_gemm_has_no_spills_at_any_size_of_block(threads: int, target: tuple[int, int]) -> None:
    found = machine("gemm", target, threads)
    assert (found.spill_nbytes, found.stack_nbytes) == (0, 0)
    # What a block may have without asking for more.
    assert 0 < found.shared_nbytes <= 48 * 1024


@every_target
def test_fma_is_nearly_all_fmas_in_independent_chains(target: tuple[int, int]) -> None:
    found = machine("fma", target)
    assert found.share("FFMA") > 0.85
    assert found.fma_targets >= 2 * CHAINS
    assert not found.loop.keys() & {"LDG", "STG", "LDS", "STS"}
    # One division of the loop by the unrolling, no work thrown away: a multiple of what a step does.
    assert found.loop["FFMA"] % (2 * CHAINS) == 0


@every_target
def test_triad_loads_twice_and_stores_once_per_element_with_loads_in_flight(target: tuple[int, int]) -> None:
    found = machine("triad", target)
    assert found.loop["STG"] == found.loop["DFMA"] >= 8
    assert found.loop["LDG"] == 2 * found.loop["STG"]
    assert Counter(found.order[: found.order.index("STG")])["LDG"] >= 2 * 8


@every_target
def test_gemm_loads_half_an_operand_per_fma(target: tuple[int, int]) -> None:
    """4 x 4 elements a thread: 8 loads from shared memory for 16 FMAs."""
    found = machine("gemm", target)
    assert found.share("FFMA") > 0.35
    assert found.share("FFMA", "LDS") > 0.5
    assert found.loop["FFMA"] >= 2 * found.loop["LDS"] > 0


@every_target
@every_kind
def test_ptx_is_for_the_gpu_and_fuses(kind: str, target: tuple[int, int]) -> None:
    ptx = machine(kind, target).ptx
    assert re.search(rf"^\.target sm_{target[0]}{target[1]}\b", ptx, re.MULTILINE)
    assert re.search(r"\.maxntid\s+1024", ptx)
    assert ("fma.rn.f64" if kind == "triad" else "fma.rn.f32") in ptx
    assert ".approx" not in ptx
    assert ".ftz" not in ptx


@pytest.mark.parametrize("target", OTHERS, ids=[f"sm_{major}{minor}" for major, minor in OTHERS])
@every_kind
def test_other_blackwells_are_compiled_for_without_spills(kind: str, target: tuple[int, int]) -> None:
    found = machine(kind, target)
    assert 32 < found.registers <= 64
    assert (found.spill_nbytes, found.stack_nbytes) == (0, 0)
    assert re.search(rf"^\.target sm_{target[0]}{target[1]}\b", found.ptx, re.MULTILINE)


def test_a_spill_would_be_seen() -> None:
    """The bounds above can fail: the same code spills where two blocks are to fit a multiprocessor."""
    tight = compiled("fma", HOPPER, launch_bounds=(1024, 2))
    assert tight.registers <= 32
    assert tight.spill_nbytes > 0
    assert tight.code.keys() & {"LDL", "STL"}


def test_the_table_of_the_docs_is_what_is_compiled() -> None:
    """To the letter, with the versions in constraints.txt: registers and counts change with the compiler."""
    assert table(machine) in (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
