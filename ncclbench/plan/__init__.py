"""What will be measured: cases, arms, sizes, order and cost. Never imports torch."""
