"""Plain versions of the hot kernels: slow and obvious. Tests compare the fast ones with them, `aircomp bench` times both."""
