"""Everything of ncclbench that needs a GPU, tried for real: what works, what is wrong, what is not here."""
