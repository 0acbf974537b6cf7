"""The command line by `python -m gemmgen`."""

from gemmgen.cli import main

if __name__ == "__main__":
    main()
