"""Verdicts between arms."""
