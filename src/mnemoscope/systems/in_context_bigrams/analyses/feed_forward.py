r"""A test of the MLP of a layer for the global bigrams: the divergence of what it makes of every token alone.

For every token z its embedding alone goes through the MLP, and the result alone is unembedded:
:math:`p(\cdot | z) = \mathrm{softmax}(W_U^T\, W_F(e_z) + b_U)`, compared by :math:`KL(\pi(\cdot | z) \| p)` with the
row of z in a table of bigrams. With a linear W_F after the last attention layer this is the probe of Bietti et al.
2023, "Birth of a Transformer: A Memory Viewpoint". An MLP with an activation function and biases is taken with them.
The model's normalisation, before the MLP and before the unembedding, is that of the one vector it gets here.

Every token counts alike (`mean_kl`), however rare; leave out tokens that are always triggers, since global bigrams
never follow them.

*Shows* how much of the table can be read off this MLP by itself.

*Does not show* what the model predicts, nor that the MLP ever reads an embedding alone: it reads the residual stream,
to which positions, attention and earlier MLPs have added. Bigrams may also go straight from embedding to unembedding,
or through attention to the token itself; the MLP may then store something else.
"""

from collections.abc import Sequence
from typing import Any

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import HookedModel, InputError
from mnemoscope.analyses import check_indices, mlp_block, to_log_probs
from mnemoscope.core import metrics


@torch.no_grad()
def feed_forward_bigrams(
    model: HookedModel,
    transitions: Float[Tensor, "token token"],
    *,
    layer: int | None = None,
    tokens: Sequence[int] | None = None,
) -> xr.Dataset:
    """The divergence of a layer's MLP from a table of bigrams, one row of probabilities per token.

    By default the layer is the last; its MLP must come after its attention. Rows are those of `tokens`, by default all.
    In nats, float64: `kl` over token, its mean `mean_kl`, and `even_kl`, that of even guesses.
    """
    number = model.cfg.n_layers - 1 if layer is None else layer
    block = mlp_block(model, number)
    size = (model.cfg.d_vocab, model.cfg.d_vocab_out)
    if tuple(transitions.shape) != size:
        raise InputError(
            f"transitions must have a row and a column for each token, {size}; got {tuple(transitions.shape)}"
        )
    if not torch.allclose(transitions.sum(1), torch.ones(size[0]).to(transitions)) or (transitions < 0).any():
        raise InputError("transitions must be probabilities that add up to 1 in every row; divide counts by their sums")
    chosen = check_indices("tokens", tokens, size[0])
    predicted = _log_probs(model, block)[chosen]
    reference = transitions[chosen].double().to(predicted.device)
    kl = metrics.kl_divergence(reference, predicted)
    even = metrics.kl_divergence(reference, torch.full_like(reference, 1 / size[1]).log())
    return xr.Dataset(
        {"kl": ("token", kl.cpu().numpy()), "mean_kl": float(kl.mean()), "even_kl": float(even.mean())},
        coords={"token": chosen},
        attrs={"unit": "nats", "layer": number, "n": len(chosen), "reads": "each embedding alone"},
    )


def _log_probs(model: Any, block: Any) -> Float[Tensor, "token d_vocab"]:
    """The predictions of the MLP of a block alone from the embedding of every token alone."""
    read = getattr(block, "ln2", None)  # TransformerLens may leave it out
    embedding = model.embed.W_E[None]
    written = block.mlp(read(embedding) if read else embedding)
    return to_log_probs(model(written, start_at_layer=model.cfg.n_layers)[0])
