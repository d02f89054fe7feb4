"""Faults on purpose: ranks that are killed, hung or slowed, and what it takes until the others run again."""
