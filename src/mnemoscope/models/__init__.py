"""Configurations, checkpoints and runs; the only room that builds TransformerLens models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
