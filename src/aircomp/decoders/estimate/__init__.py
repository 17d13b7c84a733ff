"""What the slots of a round share: the number of devices, the noise, how often each codeword is chosen."""
