"""Models as other libraries load them: a plain `HookedTransformer`, and GPT-2's architecture of `transformers`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
