"""`python -m mnemoscope` is the command `mnemoscope`."""

from mnemoscope.cli import main

if __name__ == "__main__":
    main()
