"""Dictionaries for tests: at random, and of the neurons of an MLP, whose features are those neurons."""

from typing import Any

import torch

from mnemoscope.core.dictionary import Dictionary
from tests.support import seeded

N_FEATURES = 12


def random_dictionary(model: Any, kind: str = "mlp_out", *, layer: int = 1, reads: str | None = None, **changes: Any):
    """An autoencoder or transcoder with random weights, whose error is as large as what it reconstructs."""
    draws, width = seeded(layer + 5), model.cfg.d_model
    tensors = {name: torch.randn(N_FEATURES, width, generator=draws) for name in ("w_enc", "w_dec")}
    tensors |= {"b_enc": torch.randn(N_FEATURES, generator=draws) / 4, "b_dec": torch.randn(width, generator=draws)}
    tensors = {name: value.to(model.W_E) for name, value in tensors.items()}
    fields = {"name": "random", "layer": layer, "reads": reads or kind, "writes": kind, **tensors, **changes}
    return Dictionary(**fields)


@torch.no_grad()
def neurons_as_features(model: Any, layer: int = 1):
    """The MLP of a layer with ReLUs as a transcoder: its features are the neurons, and its error is zero."""
    block, gain = model.blocks[layer], 1
    bias = block.mlp.b_in
    if model.cfg.normalization_type == "LN":
        gain, bias = block.ln2.w[:, None], bias + block.ln2.b @ block.mlp.W_in
    parts = {"w_enc": (gain * block.mlp.W_in).T, "b_enc": bias, "w_dec": block.mlp.W_out, "b_dec": block.mlp.b_out}
    parts = {name: value.detach().clone() for name, value in parts.items()}
    return Dictionary(name="neurons", layer=layer, reads="mlp_in", writes="mlp_out", **parts)
