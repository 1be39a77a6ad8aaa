"""The attention of a model, one layer at a time: what is read off patterns."""

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.recordings import recorded


@torch.no_grad()
def layer_attention(model: HookedModel, layer: int, batch: Batch) -> Float[Tensor, "batch head_index query key"]:
    """The patterns of the heads of one layer, in float64; rows add up to one.

    Raises:
        InputError: The layer does not exist, the model is too small for the batch, or attention is NaN.
    """
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    check_fits(model, batch)
    hook = Site(kind="pattern", layer=layer).hook
    attention = recorded(model, batch, [hook])[hook].double()
    # TransformerLens turns a row of NaN into zeros, so that the logits do not show it
    if not (attention.sum(-1) > 0.5).all():
        raise InputError(f"the attention of layer {layer} is NaN; check the weights, or take an earlier checkpoint")
    return attention
