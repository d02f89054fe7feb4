"""The tables of benchmarks/_link_tables.py and their judge for tests: these are scripts, in no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def load(name: str, called: str) -> ModuleType:
    """The script ``name``.py of the benchmarks under the module name ``called``."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))  # for what they share
    if called not in sys.modules:
        spec = importlib.util.spec_from_file_location(called, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[called] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[called]


# The benchmark imports it by this name, as scripts of one folder do.
tables = load("_link_tables", "_link_tables")
judging = load("attribution", "attribution_benchmark")
