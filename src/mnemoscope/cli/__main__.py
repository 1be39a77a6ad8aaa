"""`python -m mnemoscope.cli`."""

from mnemoscope.cli import main

if __name__ == "__main__":
    main()
