"""Name movers: heads that copy names, and the tokens that they attend to.

The score of a head is a product, measured on prompts that nothing else is measured on: its attention from the last
token to the IO name, and the share of names whose own logit, among those of all names, its OV circuit raises most. The
circuit is applied to the residual stream after the first block where the name stands, as in Wang et al. 2022,
"Interpretability in the wild: a circuit for indirect object identification in GPT-2 small".
"""

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, Site
from mnemoscope.systems.language_models.prompts import single_names, tokenizer_of
from mnemoscope.systems.language_models.reading import Head


@torch.no_grad()
def name_copying(model: HookedModel, batch: Batch) -> xr.DataArray:
    """The score over (layer, head), from 0 to 1, on stories of names with the latents `IO` and `last`."""
    n_layers = model.cfg.n_layers
    stream = Site(kind="resid_post", layer=0).hook
    patterns = {Site(kind="pattern", layer=layer).hook: layer for layer in range(n_layers)}
    _, cache = model.run_with_cache(
        batch.inputs, names_filter=lambda name: name == stream or name in patterns, stop_at_layer=n_layers
    )
    rows, last, due = torch.arange(len(batch)), batch.latents["last"], batch.latents["IO"]
    attention = torch.stack([cache[name][rows, :, last, due].double().mean(0) for name in patterns])
    names = batch.inputs[rows, due]
    copied = _copied(model, cache[stream][rows, due], names)
    values = (attention * copied).cpu().numpy()
    return xr.DataArray(
        values, dims=("layer", "head"), coords={"layer": range(n_layers), "head": range(values.shape[1])}
    )


def _copied(
    model: HookedModel, stream: Float[Tensor, "name d_model"], names: Tensor
) -> Float[Tensor, "layer head_index"]:
    """The share of names that each head's OV circuit raises more than any other name."""
    tokenizer = tokenizer_of(model)
    known = [tokenizer(f" {name}", add_special_tokens=False)["input_ids"][0] for name in single_names(model)]
    weights = dict(model.named_parameters())
    unembed = weights["unembed.W_U"][:, known]
    if "ln_final.w" in weights:
        unembed = weights["ln_final.w"][:, None] * unembed
    found = []
    for layer in range(model.cfg.n_layers):
        block = model.blocks[layer]
        values = einsum(block.ln1(stream), block.attn.W_V, "name d_model, head d_model d_head -> name head d_head")
        written = einsum(values, block.attn.W_O, "name head d_head, head d_head d_model -> name head d_model")
        written = written - written.mean(-1, keepdim=True)
        logits = einsum(written, unembed, "name head d_model, d_model known -> name head known")
        best = torch.tensor(known, device=names.device)[logits.argmax(-1)]
        sure = logits.amax(-1) > logits.mean(-1)  # a head that writes nothing copies nothing
        found.append(((best == names[:, None]) & sure).double().mean(0))
    return torch.stack(found)


@torch.no_grad()
def attention_from_last(
    model: HookedModel, batch: Batch, heads: Sequence[Head], places: Sequence[str]
) -> Float[np.ndarray, "place batch"]:
    """The mean attention of heads from the last token to places that latents name."""
    names = {Site(kind="pattern", layer=layer).hook for layer, _ in heads}
    stop = max(layer for layer, _ in heads) + 1
    _, cache = model.run_with_cache(batch.inputs, names_filter=lambda name: name in names, stop_at_layer=stop)
    rows, last = torch.arange(len(batch)), batch.latents["last"]
    each = [cache[Site(kind="pattern", layer=layer).hook][rows, head, last] for layer, head in heads]
    mean = torch.stack(each).mean(0)
    found = [mean[rows, batch.latents[place]] for place in places]
    return torch.stack(found).double().cpu().numpy()
