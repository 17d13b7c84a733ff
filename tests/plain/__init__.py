"""Plain versions of fast kernels: slow and obvious. Tests compare the fast ones with them."""
