"""An old name of a room; see `core.renamed`."""

from mnemoscope.core.renamed import old_room

__getattr__ = old_room(__name__)
