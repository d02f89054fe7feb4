"""One process per rank: groups, buffers, clock and loop. The only layer that measures."""
