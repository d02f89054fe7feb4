"""Commands that start workers: how many ranks there are, and one way in and out for all supervisors."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ncclbench.cli.output import as_failure, show_failure
from ncclbench.environ import variables
from ncclbench.environment.gpu import count_gpus
from ncclbench.environment.variables import without_secrets
from ncclbench.errors import EXIT_FAILED, NcclbenchError, RequestError
from ncclbench.plan.environments import Environments
from ncclbench.supervise.launcher import Seat
from ncclbench.supervise.signals import EndSignals

if TYPE_CHECKING:
    from ncclbench.supervise.launch import Job

# Open files of a process: libraries and streams, then pipes, logs and connections of each rank; and what
# tens of ranks and groups need.
_FILES, _FILES_PER_RANK, _FILES_WANTED = 28, 6, 4096

# Where neither a launcher nor --nproc-per-node says how many ranks there are, and no GPU does.
_USUAL_RANKS = 2


# What torch can read of variables that every process group looks at, and in words: where it cannot, importing
# torch.distributed raises, or a group that is made never comes back (torch 2.15).
_READ_BY_TORCH = {
    "TORCH_DISTRIBUTED_DEBUG": (r"(off|info|detail)?", "OFF, INFO or DETAIL"),
    **dict.fromkeys(
        ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), (r"[+-]?\d{1,9}", "a number of entries")
    ),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": (r"[0-3]?", "0, 1, 2 or 3"),
}


def rank_count(seat: Seat | None, nproc_per_node: int | None) -> int:
    """World size: the launcher's, else what was asked for, else a rank per GPU, else two."""
    if seat is not None:
        return seat.world_size
    return nproc_per_node or count_gpus() or _USUAL_RANKS


def typed_command() -> list[str]:
    """The command line as typed but for secrets; bytes that are no text are shown as such."""
    words = [word.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for word in sys.argv[1:]]
    return ["ncclbench", *without_secrets(words)]


def _refuse_unreadable(environ: Mapping[str, str]) -> None:
    """Refuse what torch cannot read: it would stop with an error of its own, or wait for ever.

    Raises:
        RequestError: a variable has a value that torch takes for none.
    """
    for name, (values, words) in _READ_BY_TORCH.items():
        value = environ.get(name)
        if value is not None and not re.fullmatch(values, value, re.IGNORECASE):
            raise RequestError(
                f"{name}={value!r} is nothing that torch can read: set it to {words}, or unset it"
            )


def _allow_files(nranks: int) -> None:
    """Let this process and its workers open as many files as the system lets them.

    A store or a process group that may open no more waits without a word for what never comes.

    Raises:
        RequestError: they are too few for so many ranks on this host.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < _FILES_WANTED:
        wanted = _FILES_WANTED if most == resource.RLIM_INFINITY else min(most, _FILES_WANTED)
        allowed = max(allowed, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    least = _FILES + _FILES_PER_RANK * nranks
    if allowed != resource.RLIM_INFINITY and allowed < least:
        raise RequestError(
            f"too few open files: this process may open {allowed} (ulimit -n), and {nranks} ranks here take "
            f"{least}: raise it, to {_FILES_WANTED} as a rule"
        )


def _refuse_lost_folder() -> None:
    """Refuse to start where torch cannot find its own libraries.

    Raises:
        RequestError: the folder that this process is in has been removed.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise RequestError("the folder that this was started in is gone: cd to one that is there") from None


def run_job(
    command: str,
    seat: Seat | None,
    nranks: int,
    as_json: bool,
    lead: Callable[[Job], int],
    environments: Environments | None = None,
    may_have_steps: bool = False,
) -> int:
    """Meet the other supervisors, lead or follow, and end with one code on every rank.

    Args:
        command: its name, for the failure document.
        nranks: world size where one supervisor has all ranks.
        lead: what rank 0 does; returns its exit code.
        environments: in which workers of some arms are started, by name.
        may_have_steps: rank 0 may run a preset of several steps, which the others then run, too.

    Raises:
        RequestError: a variable of torch's has a value that it cannot read.
    """
    _refuse_unreadable(variables())
    _allow_files(nranks if seat is None else 1)
    _refuse_lost_folder()
    # Before torch is imported, which takes so long that a launcher may be killed meanwhile.
    with EndSignals(None if seat is None else os.getppid()) as signals:
        # Imported here: torch takes a second or two, and what is wrong before this is said at once.
        from ncclbench.supervise.launch import join
        from ncclbench.supervise.session import end_together, follow
        from ncclbench.supervise.steps import follow_steps

        signals.check()
        job = join(seat, nranks, signals, environments)
        code = EXIT_FAILED
        try:
            if job.leads:
                job.meet_everybody()
                code = lead(job)
            else:
                code = follow_steps(job) if may_have_steps else follow(job)
        except Exception as error:
            if job.seat is None and not isinstance(error, NcclbenchError):
                raise  # ends in the one place where every command does
            # Under a launcher nothing comes after this.
            failure = as_failure(error)
            code = failure.exit_code
            show_failure(command, code, str(failure), as_json, job.leads, failure.run)
        finally:
            end_together(job, code)
    return code
