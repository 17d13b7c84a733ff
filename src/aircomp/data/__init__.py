"""Images: where they lie, how they are read, fetched and augmented."""
