"""A model as it is measured: in evaluation mode, since dropout would give two runs of one prompt different outputs."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from mnemoscope.core.protocols import HookedModel


@contextmanager
def evaluation_mode(model: HookedModel) -> Iterator[None]:
    """Put a model in evaluation mode, and every module back afterwards, also after an exception.

    Every run of a measured model goes through it: by `unembedding`, by `intervened`, or by itself. A model that is no
    `nn.Module` has no modes.
    """
    roots = (
        model,
        getattr(model, "original_model", None),
    )  # a bridge does not count all modules of what it is built on
    modules = {id(each): each for root in roots if isinstance(root, nn.Module) for each in root.modules()}
    training = [module for module in modules.values() if module.training]
    try:
        for module in training:  # one by one: `eval()` and `train()` of a model would lose what differs within it
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def bare(model: HookedModel) -> Iterator[None]:
    """Run a model without dropout and without hooks at its hook points; afterwards it is as it was."""
    hidden = [(point._forward_hooks, dict(point._forward_hooks)) for point in {*model.hook_dict.values()}]
    try:
        for hooks, _ in hidden:
            hooks.clear()
        with evaluation_mode(model):
            yield
    finally:
        for hooks, before in hidden:
            hooks.update(before)
