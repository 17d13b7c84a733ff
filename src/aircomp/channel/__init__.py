"""What the air does: superposition and noise."""
