"""The page of ``ncclbench flight``: what its panels draw from, and its figures."""
