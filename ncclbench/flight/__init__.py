"""Flight recorder dumps: read without running anything from them, joined over ranks, and judged."""
