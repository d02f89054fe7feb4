"""The devices of one worker, made when first used."""

from __future__ import annotations

import torch

from ncclbench.worker.device import CpuDevice, Device


class Devices:
    """One device per kind: the CPU, and the GPU of this local rank."""

    def __init__(self, local_rank: int) -> None:
        self._local_rank = local_rank
        self._made: dict[str, Device] = {}

    def get(self, kind: str) -> Device:
        """The device of that kind; the first call for "cuda" initialises CUDA in this process."""
        if kind not in self._made:
            self._made[kind] = self._cuda() if kind == "cuda" else CpuDevice()
        return self._made[kind]

    def name(self, uses_gpu: bool) -> str:
        """torch's name of the device that counts, as for the environment: "cpu", "cuda:3"."""
        return str(self.get("cuda").torch_device) if uses_gpu and torch.cuda.device_count() else "cpu"

    def _cuda(self) -> Device:
        # Imported where there is a GPU to use, so that nothing of it can fail elsewhere.
        from ncclbench.worker.cuda import CudaDevice

        # Launchers show every GPU to every rank, or each rank its own one only.
        return CudaDevice(self._local_rank % torch.cuda.device_count())
