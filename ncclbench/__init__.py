"""ncclbench: collective-communication benchmarks on torch.distributed."""

from pathlib import Path

__version__ = "0.1.0"

# Run from a checkout without an editable install, this package shadows the installed one and its
# kernels lie beside it rather than inside it: let ``ncclbench.kernels`` be found there too.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "kernels" / "__init__.py").is_file() and (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))
del _checkout, Path
