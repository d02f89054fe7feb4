"""What holds for every test: no setting of the machine or of a launcher reaches the code under test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from report_browsing import Browser

_PREFIXES = ("NCCL_", "CUDA_LAUNCH_", "TORCH_", "GLOO_", "SLURM_", "OMPI_", "PMI_", "TORCHELASTIC_")
_LAUNCHER = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
}
_OTHERS = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """How often what `make bench` asks for a hundred times is done in a test."""
    parser.addoption("--drills", type=int, default=15, help="in a row, in tests/test_drill_leaks.py")


@pytest.fixture(scope="session", autouse=True)
def _plain_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that want such a variable set it themselves. No calibration of this machine is found or made."""
    # What a shell starts in the background has SIGINT ignored, what nohup starts SIGHUP, and so would every
    # command under test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        for name in list(os.environ):
            if name.startswith(_PREFIXES) or name in _LAUNCHER | _OTHERS:
                patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser's process."""
    from report_browsing import started_chromium

    yield from started_chromium()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    """A browser that has seen nothing yet."""
    from report_browsing import Browser

    with Browser(chromium) as opened:
        yield opened
