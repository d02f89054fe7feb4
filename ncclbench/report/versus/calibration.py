"""Panel: the calibrations of the machines of both sides."""

from __future__ import annotations

from ncclbench.report.panels.calibration import DESCRIPTION, calibration_blocks
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.versus.model import Versus

OF_ONE_JOB = "Calibrations are of arms within one job: they say nothing of how launches differ."


def build(versus: Versus) -> Content | None:
    """One block per calibration; nothing where no run holds one."""
    return calibration_blocks((run.folder.name, run) for _, run in versus.runs)


PANEL: Panel[Versus] = Panel(
    name="calibration",
    order=50,
    title="Calibration",
    description=f"{DESCRIPTION} {OF_ONE_JOB}",
    build=build,
    template="calibration.html",
)
