"""Transformers with weights set by hand, whose circuit is known: what analyses are tested on.

Each model has a function that builds it, whose docstring states the circuit, and one of the same name with
`_circuit` that names its residual dimensions, heads and neurons. Beside them what sets weights step by step, exact
predictors in the place of a model, and trainings that went as prescribed.
"""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
