"""From the received signal to counts."""
