"""Compute kernels that run beside collectives, imported as ``ncclbench.kernels``."""
