"""The kernels that decoding spends its time in, in C."""
