"""The run folder: written while measuring, read by everything after it."""
