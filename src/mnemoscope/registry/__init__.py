"""The registry of claims: one JSON file a claim, for readers and programs that do not run the library.

`read_registry` gives entries by id, `export_entry` makes one from a claim in code.
"""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
