"""Train small transformers on memory tasks, take them apart, put claims about their circuits on trial.

`import mnemoscope as ms` gives what most people need; the rooms (`ms.analyses`, `ms.constructed`, `ms.viz`,
`ms.testing` and the others) hold the rest of the public names. These names are the promise, module paths are not.
Nothing is imported before it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
