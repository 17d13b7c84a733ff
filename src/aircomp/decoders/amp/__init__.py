"""Message passing: AMP-DA, GAMP, the sampled posterior, and the priors that they weigh counts by."""
