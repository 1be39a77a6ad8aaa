"""Train small transformers on memory tasks, take them apart, put claims about their circuits on trial.

`import mnemoscope as ms` gives what most people need; the rooms (`ms.analyses`, `ms.constructed`, `ms.report`,
`ms.testing` and the others) hold the rest of the public names. These names are the promise, module paths are not.
Nothing is imported before it is used.
"""

from mnemoscope.core.renamed import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
