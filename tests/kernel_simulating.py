"""Run as a script: kernels in numba's CUDA simulator, launched as on a GPU. Torch is a stand-in.

Prints one JSON object: per kernel what the launches came to, and the log of what torch and numba were
asked to do. The simulator runs each thread of a block as a thread of Python, so shapes are small.
NUMBA_ENABLE_CUDASIM must be 1 when numba is imported, so this is a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

# Kernel, elements, how often each is launched, and (blocks, threads, length) in turn.
CASES = {
    # 25 steps: three times eight and one more; 400 elements: round again within a launch.
    "triad": (400, 2, [(2, 16, 25), (2, 16, 3)]),
    "fma": (None, 2, [(2, 8, 37), (2, 8, 5)]),
    # With tiles of 2 steps, 8 in a panel: all of them, the first finished again, and part of the second.
    "gemm": (None, 2, [(1, 16, 19), (1, 16, 3)]),
}


class FakeTensor:
    """A tensor on the GPU; its memory is the array's."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def to(self, device: tuple[Any, ...]) -> FakeTensor:
        assert device == ("cuda", 3)
        return FakeTensor(self.array.copy())

    def cpu(self) -> SimpleNamespace:
        return SimpleNamespace(numpy=lambda: self.array.copy())

    def zero_(self) -> None:
        self.array[:] = 0


class FakeTorch:
    """What of torch the engine calls, GPU 3 being the current one."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.stream = 7
        self.cuda = SimpleNamespace(
            current_device=lambda: 3,
            device=self._entered,
            synchronize=lambda index=3: log.append("synchronize"),
            current_stream=lambda index: SimpleNamespace(cuda_stream=self.stream),
            get_device_properties=lambda device: SimpleNamespace(multi_processor_count=2),
        )

    def device(self, name: str, index: int | None = None) -> Any:
        return SimpleNamespace(index=index) if index is None else (name, index)

    @contextlib.contextmanager
    def _entered(self, index: int) -> Iterator[None]:
        assert index == 3
        yield

    def from_numpy(self, array: Any) -> FakeTensor:
        return FakeTensor(array)


class FakeDispatcher:
    """A kernel of the simulator, which knows no streams and no launch bounds."""

    def __init__(self, function: Any, log: list[str]) -> None:
        from numba import cuda

        self._kernel = cuda.jit(function)
        self._log = log

    def __getitem__(self, config: tuple[int, int, str]) -> Any:
        blocks, threads, stream = config

        def launch(*arguments: Any) -> None:
            self._log.append(f"launch on {stream}")
            self._kernel[blocks, threads](*arguments)

        return launch


def numba_cuda(log: list[str]) -> SimpleNamespace:
    """Stands for numba.cuda outside the kernels' code."""

    def as_cuda_array(tensor: FakeTensor, sync: bool) -> Any:
        assert not sync
        log.append("convert")
        return tensor.array

    def external_stream(handle: int) -> str:
        log.append(f"wrap stream {handle}")
        return f"stream {handle}"

    return SimpleNamespace(
        as_cuda_array=as_cuda_array,
        external_stream=external_stream,
        jit=lambda launch_bounds: lambda function: FakeDispatcher(function, log),
    )


def simulated(name: str) -> dict[str, Any]:
    """One kernel made, compiled, launched, made another length and launched, each time checked."""
    from ncclbench.kernels import Shape, make_kernel, with_length

    elements, launches, shapes = CASES[name]
    LOG.clear()
    kernel = make_kernel(name, "cuda", Shape(*shapes[0]), elements=elements, seed=5)
    kernel.compile()
    log, right, wrong = [*LOG], [], []
    for _, _, length in shapes:
        if length != kernel.shape.length:
            kernel = with_length(kernel, length)
        for _ in range(launches):
            LOG.clear()
            kernel.launch()
            log += LOG
            TORCH.stream += 1
        right.append(kernel.check())
        tensor = kernel._engine._tensors[-1].array  # type: ignore[attr-defined]
        tensor.flat[0] += 1
        wrong.append(kernel.check())
        tensor.flat[0] -= 1
        twin = make_kernel(name, "cpu", kernel.shape, elements=elements, seed=5)
        for _ in range(launches):
            twin.launch()
        off = float(np.abs(tensor - twin._engine.output()).max())  # type: ignore[attr-defined]
    return {"log": log, "right": right, "wrong": wrong, "off_twin": off}


LOG: list[str] = []
TORCH = FakeTorch(LOG)


def failed() -> str:
    """What comes of a compiler that refuses with an error of many lines."""
    from ncclbench.kernels import Shape, make_kernel

    from ncclbench.errors import MeasurementError

    kernel = make_kernel("fma", "cuda", Shape(1, 2, 3))
    kernel._engine._function = RefusingDispatcher()  # type: ignore[attr-defined]
    try:
        kernel.compile()
    except MeasurementError as error:
        return str(error)
    return "nothing was raised"


class RefusingDispatcher:
    def __getitem__(self, config: tuple[int, int, str]) -> Any:
        raise RuntimeError("\nunsupported PTX version\nptxas fatal: see above\n")


def main() -> None:
    from ncclbench.kernels import cuda as engine
    from ncclbench.kernels import gemm, making

    gemm.STEPS_PER_TILE, gemm.DEPTH = 2, 2 * gemm.DEPTH_PER_STEP
    sys.modules["torch"] = TORCH  # type: ignore[assignment]
    engine.numba_cuda = lambda: numba_cuda(LOG)
    making.why_unavailable = lambda device: None
    outcomes: dict[str, Any] = {name: simulated(name) for name in sys.argv[1:]}
    print(json.dumps({**outcomes, "failed": failed()}))


if __name__ == "__main__":
    main()
