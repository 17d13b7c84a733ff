"""From updates to codeword indices: fragments, the quantisation codebook, nearest codeword."""
