"""`python -m mnemoscope`: the command line."""

from mnemoscope.cli import main

if __name__ == "__main__":
    main()
