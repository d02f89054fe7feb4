"""What an operator reads on the terminal."""
