"""Logits, activations of every kind and layer, and gradients of the loss in every parameter, through the model itself.

The loss is the task's own, in evaluation mode, with the answers to another sequence: with its own a trained model has
next to none, and what is left of the gradient is the rounding of the difference. Activations are taken from the cache;
`result`, which none holds, from `Recordings`. A kind that a shape of model does not have is left out.

A change of one number far below the others can be less than a hundred-thousandth of them together. Digests of every
bit (`bits`) show it on the processor of the record.
"""

from collections.abc import Iterator

import numpy as np
import torch

import mnemoscope as ms
from mnemoscope.core.site import EMBEDDINGS, KINDS
from tests.golden.models import LANGUAGE, ZOO, Case, case
from tests.golden.summary import as_array, digest

NAMES = (*ZOO, *LANGUAGE)


def activations(of: Case) -> Iterator[tuple[str, np.ndarray]]:
    """The logits, and every activation by kind and layer."""
    with torch.no_grad():
        logits, cache = of.model.run_with_cache(of.batch.inputs)
    yield "logits", as_array(logits)
    recordings = ms.interventions.Recordings(of.model)
    batch = ms.Named(name="batch", value=of.batch)
    for kind in KINDS:
        for layer in [None] if kind in EMBEDDINGS else range(of.model.cfg.n_layers):
            site = ms.Site(kind=kind, layer=layer)
            if kind == "result":
                yield f"{kind} {layer}", as_array(recordings.of(batch, site))
            elif site.hook in cache:
                yield f"{kind} {'' if layer is None else layer}".strip(), as_array(cache[site.hook])


def gradients(of: Case) -> Iterator[tuple[str, np.ndarray]]:
    """The loss, and its gradient by parameter; those that have none are zero."""
    parameters = {name: value for name, value in of.model.named_parameters() if value.requires_grad}
    loss = of.loss(of.model(of.batch.inputs))
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    yield "loss", as_array(loss)
    for (name, value), gradient in zip(parameters.items(), found, strict=True):
        yield name, as_array(torch.zeros_like(value) if gradient is None else gradient)


def of_activations(name: str) -> dict[str, np.ndarray]:
    """The logits and activations of a model."""
    return {f"{name}/{key}": value for key, value in activations(case(name))}


def of_gradients(name: str) -> dict[str, np.ndarray]:
    """The loss and gradients of a model."""
    return {f"{name}/{key}": value for key, value in gradients(case(name))}


def bits(name: str) -> str:
    """The digest of the logits and activations of a model."""
    return digest(of_activations(name).values())
