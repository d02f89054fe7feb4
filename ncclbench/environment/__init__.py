"""What rank, host and settings a number was measured on."""
