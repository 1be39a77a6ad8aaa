"""Analyses as users meet them: one file and one record each.

A record says what is measured on a run, with which options, and how results are shown: tables, figures, the finding in
a sentence and the limits. From it come the command with its help, sections of reports, the page of the documentation
and the contract tests. Modules of this folder are found by themselves; guests `register` theirs.
"""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
