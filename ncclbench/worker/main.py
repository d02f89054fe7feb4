"""A worker: one rank, from the fork to the last sample. Runs in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from ncclbench.environ import set_variables
from ncclbench.environment.collect import collect, merge
from ncclbench.environment.gpu import count_gpus
from ncclbench.environment.health import read_health
from ncclbench.tables.settings import GLOO_INTERFACE
from ncclbench.worker import protocol, recorder
from ncclbench.worker.board import Gate, Place
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.devices import Devices
from ncclbench.worker.fence import Fence, make_fence
from ncclbench.worker.groups import kind_of, prepare_environment
from ncclbench.worker.link import Link
from ncclbench.worker.measure import Measurement
from ncclbench.worker.probe import first_line
from ncclbench.worker.programs import find_program
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.protocol import WorkerTask

# The supervisor's deadline must come first: it can name the rank, the libraries' timeouts cannot.
_LIBRARY_TIMEOUT_FACTOR = 1.5
_LIBRARY_TIMEOUT_EXTRA_S = 15.0

_FENCE_SAMPLES = 40


def run_worker(
    task: WorkerTask,
    store: Any,
    pipe: Connection,
    place: Place,
    gate: Gate | None,
    recorders: socket.socket | None = None,
) -> None:
    """Do the task; tell the supervisor how it ended.

    Args:
        store: a torch store that all workers of this launch share and nobody else uses.
        pipe: to the supervisor.
        place: this worker's progress.
        gate: where one supervisor has forked all ranks.
        recorders: the line on which the supervisor learns how to ask for the flight recorder; None where it
            will not.
    """
    asked = recorder.answering(recorders, task.rank) if recorders is not None else contextlib.nullcontext()
    with asked:
        try:
            _work(task, store, pipe, place, gate)
            pipe.send(protocol.Done())
        except Exception as error:  # everything a backend may raise must reach the supervisor as words
            dumps = tuple(recorder.dumps(task.rank)) if recorders is not None else ()
            traceback.print_exc()
            pipe.send(protocol.Raised(first_line(error), type(error).__name__, dumps))


def _work(task: WorkerTask, store: Any, pipe: Connection, place: Place, gate: Gate | None) -> None:
    """Describe the environment; with a plan or a program and the supervisor's consent, measure."""
    plan = task.plan
    timeout_s = task.timeout_s * _LIBRARY_TIMEOUT_FACTOR + _LIBRARY_TIMEOUT_EXTRA_S
    gpus = count_gpus()
    # The control plane is no arm's: of an interface that is not there the arm alone is to tell.
    set_variables({name: value for name, value in task.variables.items() if name != GLOO_INTERFACE})
    prepare_environment(task.one_host, task.share_gpu, -(-task.local_ranks // max(1, gpus)))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // task.local_ranks))
    place.step()
    control = ControlPlane(store, task.rank, task.nranks, timeout_s)
    set_variables(task.variables)
    place.step()
    link = Link(pipe, speaks=task.rank == 0)
    devices = Devices(task.local_rank)
    uses_gpu = gpus > 0 and (plan is None or any(kind_of(arm) == "cuda" for arm in plan.arms))
    device = devices.name(uses_gpu)
    hosts = _describe(task, control, link, device)
    if plan is not None and control.share(link.answer()):
        _tell_health(task, control, link, device, place, before=True)
        control.synchronise_clocks(hosts)
        fence = make_fence(gate, control)
        _judge(fence, control, link)
        Measurement(task, plan, control, fence, devices, link, place, timeout_s).run()
        _tell_health(task, control, link, device, place, before=False)
        link.settle()
    elif task.program is not None and control.share(link.answer()):
        bench = Bench(task, control, devices, link, place, timeout_s, gate, hosts)
        find_program(task.program.name)(bench, task.program.request)
        link.settle()
    control.close()


def _describe(task: WorkerTask, control: ControlPlane, link: Link, device: str) -> list[int]:
    """Tell rank 0's supervisor about all ranks; returns which ranks share a host, by number."""
    clock_s = control.times_of_day()
    described = collect(task.rank, task.local_rank, device)
    described["rank"]["now"]["clock_s"] = clock_s
    everybody = control.gather(described)
    hosts: list[int] = []
    if everybody is not None:
        environment = merge(everybody)
        hosts = [entry["host"] for entry in environment["ranks"]]
        link.tell(protocol.Described(environment))
    return list(control.share(hosts))


def _tell_health(
    task: WorkerTask, control: ControlPlane, link: Link, device: str, place: Place, before: bool
) -> None:
    """Tell what all GPUs and NICs say. A step on each side: a call of NVML may hang on a sick GPU."""
    place.step()
    everybody = control.gather(read_health(task.local_rank, device))
    place.step()
    if everybody is not None:
        link.tell(protocol.Health(before, everybody))


def _judge(fence: Fence, control: ControlPlane, link: Link) -> None:
    """Measure how far apart ranks leave the fence."""
    left = np.zeros(_FENCE_SAMPLES, dtype=np.int64)
    for index in range(_FENCE_SAMPLES):
        fence()
        left[index] = time.perf_counter_ns() + control.clock_offset_ns
    everybody = control.gather_array(left)
    if everybody is not None:
        skew_us = np.ptp(np.stack(everybody), axis=0) / 1e3
        link.tell(
            protocol.FenceQuality(
                fence.kind,
                float(np.median(skew_us)),
                float(np.quantile(skew_us, 0.95)),
                control.clock_error_ns / 1e3,
            )
        )
