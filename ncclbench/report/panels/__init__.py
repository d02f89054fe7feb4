"""PANELS: the parts of a report."""
