"""What every room may use: checks, settings, generators, files, directories."""
