"""The version of the package: the tag that it was built from, and after it how many commits later and which one."""

from importlib.metadata import version

__version__ = version("mnemoscope")
