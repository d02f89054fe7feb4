"""Panel: where size begins to count on each side: time at no size, bandwidth, half-performance size."""

from __future__ import annotations

from typing import Any

from ncclbench.compare.fits import FitPair, fit_pairs
from ncclbench.report.fitted import DESCRIPTION, WORDS, fit_line
from ncclbench.report.model import family_key
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import ratio_text
from ncclbench.report.versus.model import Versus
from ncclbench.stats.alphabeta import FIGURES
from ncclbench.stats.fits import CurveFit


def build(versus: Versus) -> Content | None:
    """Both sides of every curve, one under the other; nothing where all sweeps are too short for a fit."""
    pairs = fit_pairs(versus.comparison)
    fits = [fit for pair in pairs for fit in (pair.base, pair.new) if fit is not None]
    if all(fit.fit.misfit is None for fit in fits):
        return None
    units = list(dict.fromkeys(fit.unit for fit in fits if fit.fit.units > 1))
    return {
        "curves": [_curve(versus, pair) for pair in pairs],
        "words": WORDS,
        "units": " and ".join(units),
    }


PANEL: Panel[Versus] = Panel(
    name="fits",
    order=16,
    title="Where size begins to count",
    description=DESCRIPTION,
    build=build,
    template="versus-fits.html",
)


def _curve(versus: Versus, pair: FitPair) -> dict[str, Any]:
    lines = [
        {"side": pair.row[side], "is_ratio": False, **fit_line(fit)}
        for side, fit in (("base", pair.base), ("new", pair.new))
        if fit is not None
    ]
    ratios = _ratios(pair.base, pair.new)
    if ratios is not None:
        lines.append({"side": "new / base", "is_ratio": True, "cells": ratios, "note": ""})
    return {
        "family": versus.families[family_key(pair.row)].title,
        "mode": pair.row["mode"],
        "lines": lines,
    }


def _ratios(base: CurveFit | None, new: CurveFit | None) -> list[dict[str, str]] | None:
    """New over base of every figure that both have; None where there is none."""
    if base is None or new is None:
        return None
    values = [(base.fit.figures[name].value, new.fit.figures[name].value) for name in FIGURES]
    if all(one is None or other is None for one, other in values):
        return None
    return [
        {"value": ratio_text(other / one) if one and other else "–", "interval": "", "what": "", "why": ""}
        for one, other in values
    ]
