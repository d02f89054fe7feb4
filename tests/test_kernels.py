"""Kernels on the CPU against numpy, and what holds on every device: their data, figures and errors."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncclbench.kernels import (
    KINDS,
    Shape,
    calibrate,
    fma,
    gemm,
    make_kernel,
    triad,
    why_unavailable,
    with_length,
)

from ncclbench.errors import RequestError

ROOT = Path(__file__).resolve().parent.parent
# More than one block, and a size at which each kind's arrays are small.
SMALL = {"fma": Shape(2, 3, 50), "triad": Shape(3, 5, 11), "gemm": Shape(2, 16, 70)}
ELEMENTS = {"triad": 100}
every_kind = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, **changes: Any) -> Any:
    return make_kernel(kind, "cpu", replace(SMALL[kind], **changes), elements=ELEMENTS.get(kind))


def data(kernel: Any) -> tuple[Any, Any]:
    """The kernel's inputs, and its output as it is now."""
    return kernel._problem.inputs, kernel._engine.output()


def launched(kind: str, times: int = 1, **changes: Any) -> Any:
    kernel = made(kind, **changes)
    kernel.compile()
    for _ in range(times):
        kernel.launch()
    return kernel


# Results, against arithmetic that is not the kernels' own.


def test_fma_takes_each_step_in_turn() -> None:
    (start,), end = data(launched("fma"))
    x, y = start
    h = np.float32(fma.H)
    for _ in range(SMALL["fma"].length):
        x = x + h * y
        y = y - h * x
    assert x.dtype == np.float32
    assert np.abs(end - np.stack([x, y])).max() < 1e-5
    assert np.abs(fma.turned(start, SMALL["fma"].length) - np.stack([x, y])).max() < 1e-5


@pytest.mark.parametrize("launches", [1, 2])
def test_triad_updates_as_many_elements_as_it_was_asked_to(launches: int) -> None:
    """Each launch goes on where the last one ended: 75 of 100 elements, then all."""
    (b, c), a = data(launched("triad", launches, length=5))
    done = min(100, 75 * launches)
    assert (a[:done] == b[:done] + 3.0 * c[:done]).all()
    assert not a[done:].any()


def test_gemm_is_a_matrix_product() -> None:
    """With all tiles finished it is numpy's, to the last bit."""
    (a_t, b), c = data(launched("gemm", length=gemm.STEPS_PER_TILE * gemm.ROW_TILES))
    assert (c == a_t.astype(np.float64).T @ b.astype(np.float64)).all()


def test_gemm_that_ends_within_a_tile_holds_the_sum_so_far() -> None:
    """70 steps: one tile of 64, and 6 steps of the next."""
    (a_t, b), c = data(launched("gemm"))
    tile, depth = 16, 6 * gemm.DEPTH_PER_STEP
    assert (c[:tile] == a_t[:, :tile].T @ b).all()
    assert (c[tile : 2 * tile] == a_t[:depth, tile : 2 * tile].T @ b[:depth]).all()
    assert not c[2 * tile :].any()


# What check() sees.


@every_kind
def test_right_results_pass_however_often_launched(kind: str) -> None:
    for times in (1, 2, 7):
        assert launched(kind, times).check()


@every_kind
def test_nothing_is_right_before_the_first_launch(kind: str) -> None:
    kernel = launched(kind)
    assert not with_length(kernel, 3).check()
    kernel = made(kind)
    kernel.compile()
    assert not kernel.check()


@every_kind
def test_one_wrong_element_is_found(kind: str) -> None:
    kernel = launched(kind)
    output = data(kernel)[1]
    for wrong in (output.flat[-1] + 1, math.nan):
        right, output.flat[-1] = output.flat[-1].copy(), wrong
        assert not kernel.check()
        output.flat[-1] = right
    assert kernel.check()


@every_kind
@pytest.mark.parametrize("other", [-1, 1])
def test_work_left_out_or_done_too_much_is_found(kind: str, other: int) -> None:
    kernel = launched(kind, length=5)
    assert kernel.check()
    kernel.shape = replace(kernel.shape, length=5 + other)
    assert not kernel.check()


@pytest.mark.parametrize("length", [1, 1_000, 3_000_000])
def test_fma_stays_bounded_and_right_however_long(length: int) -> None:
    kernel = launched("fma", blocks=1, threads=1, length=length)
    assert kernel.check()
    assert np.abs(data(kernel)[1]).max() < 1.5


# Lengths and figures.


@every_kind
def test_another_length_keeps_the_buffers(kind: str) -> None:
    kernel = launched(kind)
    other = with_length(kernel, 4)
    assert other.shape == replace(kernel.shape, length=4)
    assert data(other)[1] is data(kernel)[1]
    other.launch()
    assert other.check()


@every_kind
def test_work_is_proportional_to_length(kind: str) -> None:
    entry, shape = KINDS[kind], Shape(3, 64, 640)
    longer = replace(shape, length=1920)
    assert entry.flops(longer) == 3 * entry.flops(shape)
    assert made(kind).flops() == entry.flops(SMALL[kind])
    if kind != "fma":
        assert entry.nbytes(longer) == 3 * entry.nbytes(shape)


def test_flops_and_bytes_are_what_the_formulas_say() -> None:
    assert KINDS["fma"].flops(Shape(2, 4, 10)) == 2 * 2 * fma.CHAINS * 10 * 8
    # A state of two float32 per chain, read and written.
    assert KINDS["fma"].nbytes(Shape(2, 4, 10)) == 2 * 8 * fma.CHAINS * 8
    assert KINDS["triad"].flops(Shape(2, 4, 10)) == 160
    assert KINDS["triad"].nbytes(Shape(2, 4, 10)) == 80 * 24
    assert KINDS["gemm"].flops(Shape(1, 256, 64)) == 2 * 64 * 64 * gemm.DEPTH
    assert KINDS["gemm"].nbytes(Shape(1, 256, 64)) == 4 * (2 * 64 * gemm.DEPTH + 64 * 64)


def test_a_kind_says_what_it_keeps_busy() -> None:
    assert {name: kind.bound for name, kind in KINDS.items()} == {
        "fma": "compute",
        "triad": "memory",
        "gemm": "compute",
    }
    for kind in KINDS.values():
        # Operations per byte: what a CPU or GPU of today can do per byte of its memory is 4 and more.
        shape = Shape(1, 256, 1000)
        intensity = kind.flops(shape) / kind.nbytes(shape)
        assert (intensity > 4) == (kind.bound == "compute")


def fastest_us(kernel: Any) -> float:
    kernel.compile()
    best = math.inf
    for _ in range(3):
        begin = time.perf_counter()
        kernel.launch()
        best = min(best, time.perf_counter() - begin)
    return best * 1e6


@every_kind
def test_no_work_is_optimised_away(kind: str) -> None:
    """64 times the length takes at least 20 times as long: what was left out of a loop would show."""
    short = {"fma": Shape(1, 1, 2_000), "triad": Shape(1, 1, 50_000), "gemm": Shape(1, 64, 30)}[kind]
    elements = 2**18 if kind == "triad" else None
    first = make_kernel(kind, "cpu", short, elements=elements)
    first_us = fastest_us(first)
    assert fastest_us(with_length(first, 64 * short.length)) > 20 * first_us


@every_kind
def test_the_first_launch_after_compiling_is_not_slow(kind: str) -> None:
    """Compiling takes over 100 ms, a launch of the default shape far less."""
    kernel = make_kernel(kind, "cpu", elements=2**16 if kind == "triad" else None)
    kernel.compile()
    begin = time.perf_counter()
    kernel.launch()
    assert time.perf_counter() - begin < 0.05


@every_kind
def test_other_threads_run_while_a_kernel_does(kind: str) -> None:
    """The GIL is free. Were it held, this thread would wait until the kernel has ended."""
    kernel = calibrate(launched(kind), 200_000, fastest_us, lambda time_us: time_us)
    worker = threading.Thread(target=kernel.launch)
    begin = last = time.perf_counter()
    longest_gap = 0.0
    worker.start()
    while worker.is_alive():
        time.sleep(0.001)
        now = time.perf_counter()
        longest_gap, last = max(longest_gap, now - last), now
    worker.join()
    assert longest_gap < (last - begin) / 2
    assert kernel.check()


def test_equal_seeds_give_equal_data() -> None:
    for kind in KINDS:
        (one, *_), (same, *_), (other, *_) = (
            data(make_kernel(kind, "cpu", SMALL[kind], elements=ELEMENTS.get(kind), seed=seed))[0]
            for seed in (1, 1, 2)
        )
        assert (one == same).all()
        assert (one != other).any()


def test_kernels_run_right_on_every_device_there_is() -> None:
    """On a machine with a GPU this is the real thing."""
    for device in ("cpu", "cuda"):
        if why_unavailable(device) is not None:
            continue
        for kind in KINDS:
            kernel = make_kernel(kind, device)
            kernel.compile()
            for _ in range(3):
                kernel.launch()
            assert kernel.check()
            kernel = with_length(kernel, 77)
            kernel.launch()
            assert kernel.check()


# Errors, one line each.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fmaa", "cpu"), "unknown kernel 'fmaa': did you mean 'fma'?"),
        (("fma", "gpu"), "unknown device 'gpu': did you mean 'cpu'?"),
        (("fma", "cpu", Shape(0, 1, 1)), "kernel fma: blocks is 0: give 1 to 2,147,483,647"),
        (("fma", "cpu", Shape(1, 1025, 1)), "kernel fma: threads is 1,025: give 1 to 1,024"),
        (("triad", "cpu", Shape(1, 1, -3)), "kernel triad: length is -3: give 1 to 2,147,483,647"),
        (("gemm", "cpu", Shape(1, 128, 1)), "kernel gemm: threads is 128: give one of 16, 64, 256, 1024"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        make_kernel(*arguments)
    assert str(caught.value) == message


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RequestError, match=r"elements is 9: give at least one for each of the 15 threads"):
        make_kernel("triad", "cpu", SMALL["triad"], elements=9)
    with pytest.raises(RequestError, match="leave elements out"):
        make_kernel("fma", "cpu", elements=100)
    with pytest.raises(RequestError, match="length is 0: give 1 to"):
        with_length(made("fma"), 0)


def no_library() -> None:
    from cuda.pathfinder import DynamicLibNotFoundError

    raise DynamicLibNotFoundError("nvvm")


def test_why_no_gpu_is_said_in_one_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert why_unavailable("cuda") == "needs a CUDA device, none is visible"
    with pytest.raises(RequestError, match="kernel fma on cuda: needs a CUDA device, none is visible"):
        make_kernel("fma", "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert why_unavailable("cuda") is None
    with monkeypatch.context() as patch:
        patch.setattr("numba.cuda.cudadrv.nvvm.NVVM", no_library)
        assert why_unavailable("cuda") == "needs libnvvm: pip install 'ncclbench[cuda]'"
    with monkeypatch.context() as patch:
        patch.setattr("numba.core.config.ENABLE_CUDASIM", 1)
        assert why_unavailable("cuda") == "NUMBA_ENABLE_CUDASIM asks for numba's simulator: unset it"
    found = importlib.util.find_spec
    missing = "numba_cuda"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else found(name))
    assert why_unavailable("cuda") == "needs numba-cuda: pip install 'ncclbench[cuda]'"
    missing = "numba"
    assert why_unavailable("cpu") == "needs numba: pip install numba"


def test_settings_of_numba_that_spoil_kernels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert why_unavailable("cpu") == "NUMBA_DISABLE_JIT leaves kernels to the interpreter: unset it"
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    assert why_unavailable("cpu") is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_numba_that_cannot_be_loaded_is_a_reason_in_one_line(device: str) -> None:
    script = f"from ncclbench.kernels import why_unavailable; print(why_unavailable({device!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_NUM_THREADS": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (said,) = done.stdout.splitlines()
    assert said.startswith("numba cannot be loaded (Number of threads specified must be > 0.): "), done.stderr
    assert said.endswith("unset NUMBA_* variables")


def test_importing_kernels_loads_no_compiler() -> None:
    script = (
        "import sys, ncclbench.kernels as k; k.KINDS['fma'].flops(k.Shape(1, 1, 1))\n"
        "print([name for name in ('numba', 'torch', 'numpy', 'cuda') if name in sys.modules])\n"
        "k.make_kernel('fma', 'cpu').compile()\n"
        "print([name for name in ('numba', 'numba.cuda', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[]", "['numba']"], done.stderr


def test_triad_counts_as_stream_does() -> None:
    assert 3 * np.dtype(np.float64).itemsize == triad.BYTES_PER_ELEMENT
