"""`python -m gemmgen.cli` is the console script."""

from gemmgen.cli import main

main()
