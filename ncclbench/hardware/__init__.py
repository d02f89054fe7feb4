"""What the hardware should give: cited peaks, which of them bounds a row, and requirements."""
