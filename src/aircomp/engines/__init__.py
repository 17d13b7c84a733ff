"""Where devices train: in this process, in local ones, on a Ray cluster."""
