"""The public names of `mnemoscope.hookcheck`."""

from mnemoscope.hookcheck.check import Report, check_model
from mnemoscope.hookcheck.law import Finding, Law
from mnemoscope.hookcheck.laws import LAWS

__all__ = ["LAWS", "Finding", "Law", "Report", "check_model"]
