"""The command line."""

from ncclbench.cli.app import main

__all__ = ["main"]
