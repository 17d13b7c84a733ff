"""The trained communication layer: codebook and decoder as one object, its export."""
