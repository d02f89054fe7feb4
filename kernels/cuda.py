"""Kernels on a GPU: numba compiles them, torch holds their arrays and says on which stream they go."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ncclbench.kernels.kind import MAX_THREADS, KernelKind, Problem, Shape

from ncclbench.errors import MeasurementError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def why_no_cuda() -> str | None:
    """Why kernels cannot run on a GPU here, and how to mend it; None where they can.

    CUDA is not initialised by asking.
    """
    import torch

    if importlib.util.find_spec("numba_cuda") is None:
        return "needs numba-cuda: pip install 'ncclbench[cuda]'"
    if torch.cuda.device_count() == 0:
        return "needs a CUDA device, none is visible"
    from numba.core import config

    if getattr(config, "ENABLE_CUDASIM", False):
        return "NUMBA_ENABLE_CUDASIM asks for numba's simulator: unset it"
    from numba.cuda.cudadrv import nvvm

    try:
        nvvm.NVVM()  # type: ignore[no-untyped-call]
    except (ImportError, RuntimeError):
        # numba's own error, or that of cuda.bindings, which looks for the library.
        return "needs libnvvm: pip install 'ncclbench[cuda]'"
    return None


def multiprocessors(torch_device: Any) -> int:
    """How many the GPU has; None is torch's current one."""
    import torch

    device = torch.device("cuda" if torch_device is None else torch_device)
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# CU_STREAM_LEGACY, cuda.h.
_LEGACY_STREAM = 1

_dispatchers: dict[tuple[str, int], Any] = {}


def dispatcher(kind: KernelKind, threads: int) -> Any:
    """The kind's CUDA function for blocks of so many threads, once per process: so it is compiled once."""
    if (kind.name, threads) not in _dispatchers:
        # As launch bounds they hold registers to 64 a thread, so that a block of any size can be launched.
        jit = numba_cuda().jit(launch_bounds=MAX_THREADS)
        _dispatchers[kind.name, threads] = jit(kind.on_cuda(threads))
    return _dispatchers[kind.name, threads]


def numba_cuda() -> Any:
    """numba.cuda, for which there are no types."""
    from numba import cuda

    return cuda


class CudaEngine:
    """The arrays of a problem as torch tensors, each made known to numba once.

    Args:
        torch_device: the GPU, as torch writes it; None: torch's current one.
    """

    def __init__(self, kind: KernelKind, shape: Shape, problem: Problem, torch_device: Any) -> None:
        import torch
        from numba.cuda.core import config

        # Few blocks are what is asked for, where the others' multiprocessors are left free.
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
        self._torch, self._cuda = torch, numba_cuda()
        self._name = kind.name
        device = torch.device("cuda" if torch_device is None else torch_device)
        self._index = torch.cuda.current_device() if device.index is None else device.index
        device = torch.device("cuda", self._index)
        self._function = dispatcher(kind, shape.threads)
        self._launchers: dict[int, Callable[..., None]] = {}
        self._grid = (shape.blocks, shape.threads)
        with self._failing_in_one_line(), torch.cuda.device(self._index):
            self._tensors = [
                torch.from_numpy(array).to(device) for array in (*problem.inputs, problem.output)
            ]
            # Converting at every launch would cost more than the launch.
            self._arrays = [self._cuda.as_cuda_array(tensor, sync=False) for tensor in self._tensors]

    def compile(self, shape: Shape, numbers: tuple[Any, ...]) -> None:
        """Compile for the current GPU and run once, so that no launch pays for it."""
        with self._failing_in_one_line(), self._torch.cuda.device(self._index):
            self.launch(shape, numbers)
            self._torch.cuda.synchronize(self._index)

    @contextlib.contextmanager
    def _failing_in_one_line(self) -> Iterator[None]:
        """torch, numba, its linker and the driver each have errors of their own, some of many lines."""
        try:
            yield
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise MeasurementError(
                f"kernel {self._name} cannot run on cuda:{self._index}: {reason} (if numba-cuda does not fit "
                "the driver: pip install -U 'ncclbench[cuda]')"
            ) from error

    def launch(self, shape: Shape, numbers: tuple[Any, ...]) -> None:
        """Put one launch on torch's current stream; returns at once."""
        import numpy as np

        # torch's default stream is 0, by which numba launches on the thread's own one where
        # CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM asks for it: the legacy stream by its own handle.
        stream = self._torch.cuda.current_stream(self._index).cuda_stream or _LEGACY_STREAM
        launcher = self._launchers.get(stream)
        if launcher is None:
            launcher = self._function[*self._grid, self._cuda.external_stream(stream)]
            self._launchers[stream] = launcher
        launcher(*self._arrays, *numbers, np.int32(shape.length))

    def output(self) -> NDArray[Any]:
        """The array that launches have written, copied to the host."""
        self._torch.cuda.synchronize(self._index)
        array: NDArray[Any] = self._tensors[-1].cpu().numpy()
        return array

    def clear(self) -> None:
        """Make the output zeros again, on torch's current stream."""
        self._torch.cuda.synchronize(self._index)
        self._tensors[-1].zero_()
        self._torch.cuda.synchronize(self._index)
