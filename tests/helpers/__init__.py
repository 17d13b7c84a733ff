"""What several tests need, once, by subject. Imported by tests only, after the shape checks are installed."""
