"""The tables of everything that has a name. None of them imports torch at import time."""
