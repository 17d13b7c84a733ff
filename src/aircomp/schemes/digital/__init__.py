"""The digital link of the paper and what wraps it; `link.py` is Section III, one short file."""
