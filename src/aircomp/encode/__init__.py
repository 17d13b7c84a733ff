"""Random-access codebooks: the codeword each index sends."""
