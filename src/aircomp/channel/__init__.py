"""What the air does: gains, superposition and noise."""
