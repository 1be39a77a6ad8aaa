"""A constructed model under layer normalisation."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build

_WRITING = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")


@torch.no_grad()
def layer_normalised(model: HookedTransformer, *, anchor: float = 3000.0) -> HookedTransformer:
    """The same circuit with layer normalisation before every attention, MLP and unembedding.

    Every vector r of the residual stream becomes (r, -r, anchor, -anchor): its mean is zero, and its length hardly
    depends on r. Only the first copy is read. The weights of the normalisation undo the fixed length, so that
    everything is read as before, smaller by the factor anchor / sqrt(anchor^2 + |r|^2). What remains is this factor and
    rounding in float32: `dissociated` and `shared_store` are right up to V = 6, the other models without limit.

    Args:
        model: With two heads per layer and without normalisation.
        anchor: The constant that the positional embedding carries; large against r.

    Returns:
        A model with 2 * d_model + 2 dimensions; those of the circuit are the same as before.
    """
    cfg = model.cfg
    assert cfg.normalization_type is None
    width = 2 * cfg.d_model + 2
    spec = ModelSpec(d_model=width, n_heads=cfg.n_heads, n_layers=cfg.n_layers, mlp=not cfg.attn_only, d_mlp=cfg.d_mlp)
    result = build(spec, d_vocab=cfg.d_vocab, n_ctx=cfg.n_ctx, seed=0)
    old = dict(model.named_parameters())
    for name, parameter in result.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind in ("w", "b"):
            parameter.fill_(anchor * (2 / width) ** 0.5 if kind == "w" else 0.0)
            continue
        parameter.zero_()
        source = old[name] * (result.cfg.attn_scale / cfg.attn_scale if kind in ("W_Q", "b_Q") else 1)
        first = [slice(size) for size in source.shape]
        parameter[*first] = source
        if kind in _WRITING:
            parameter[*first[:-1], cfg.d_model : 2 * cfg.d_model] = -source
    result.pos_embed.W_pos[:, -2:] = torch.tensor([anchor, -anchor])
    return result
