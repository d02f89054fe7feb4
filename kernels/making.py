"""Kernels made ready: the kind and device by name, shapes with defaults, and why one cannot be had."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ncclbench.kernels.kernel import Kernel, LaunchedKernel
from ncclbench.kernels.kind import Shape
from ncclbench.kernels.kinds import KINDS

from ncclbench.environ import variable
from ncclbench.errors import RequestError
from ncclbench.names import lookup, unknown

DEVICES = ("cpu", "cuda")


def why_unavailable(device: str) -> str | None:
    """Why no kernel can run on that device here, and how to mend it, in one line; None where they can.

    Loads numba, as the first kernel would.

    Raises:
        RequestError: it is neither "cpu" nor "cuda".
    """
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if importlib.util.find_spec("numba") is None:
        return "needs numba: pip install numba"
    try:
        importlib.import_module("numba")
    except Exception as error:  # numpy too new for it, a variable that it cannot read, half an installation
        words = " ".join(str(error).split()) or type(error).__name__
        return f"numba cannot be loaded ({words}): pip install -U numba, or unset NUMBA_* variables"
    if device == "cuda":
        # Not imported for a CPU: it may load torch.
        from ncclbench.kernels.cuda import why_no_cuda

        return why_no_cuda()
    if (variable("NUMBA_DISABLE_JIT") or "0") != "0":
        return "NUMBA_DISABLE_JIT leaves kernels to the interpreter: unset it"
    return None


def make_kernel(
    kind: str,
    device: str,
    shape: Shape | None = None,
    *,
    torch_device: Any = None,
    elements: int | None = None,
    seed: int = 0,
) -> Kernel:
    """A kernel with its data in place; ``compile`` it before it is timed.

    Args:
        kind: a name in KINDS.
        device: "cpu" or "cuda".
        shape: default: the kind's own, on a GPU with a block for every multiprocessor.
        torch_device: the GPU, as torch writes it; default: torch's current one.
        elements: of each array of triad (the other kinds' data follow from the shape); default: the kind's.
        seed: of the data.

    Raises:
        RequestError: no such kind or device, a shape that the kind cannot have, or it is unavailable here.
    """
    entry = lookup(KINDS, "kernel", kind)
    reason = why_unavailable(device)
    if reason is not None:
        raise RequestError(f"kernel {kind} on {device}: {reason}")
    defaults = entry.defaults[device]
    if elements is not None and not defaults.elements:
        raise RequestError(f"kernel {kind}: its data follow from its shape: leave elements out")
    elements = defaults.elements if elements is None else elements
    if shape is None:
        shape = Shape(_default_blocks(device, torch_device), defaults.threads, defaults.length)
    entry.check_shape(shape, elements)
    problem = entry.problem(shape, elements, seed)
    if device == "cuda":
        from ncclbench.kernels.cuda import CudaEngine

        return LaunchedKernel(entry, shape, problem, CudaEngine(entry, shape, problem, torch_device))
    from ncclbench.kernels.cpu import CpuEngine

    return LaunchedKernel(entry, shape, problem, CpuEngine(entry, problem))


def _default_blocks(device: str, torch_device: Any) -> int:
    if device == "cpu":
        return 1
    from ncclbench.kernels.cuda import multiprocessors

    return multiprocessors(torch_device)
