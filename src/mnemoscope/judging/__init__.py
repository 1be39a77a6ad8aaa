"""From numbers per seed to a verdict: claims, evidence, controls, quantifiers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
