"""One idea per module: functions of models and prompts that return labelled arrays. None knows a task."""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
