"""`python -m aircomp`: the command line."""

from aircomp.cli import main

main()
