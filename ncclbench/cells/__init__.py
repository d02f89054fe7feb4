"""Cells: a few ranks in processes of their own under a deadline, so that whatever hangs ends with them."""
