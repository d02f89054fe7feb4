"""Everything of ncclbench that needs a GPU, tried for real on this machine: what works, what is wrong, what is not here."""
