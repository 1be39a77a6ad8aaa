"""The units of a layer: the neurons of its MLP, or in their place the features of its dictionary.

Both have a key and a value: a neuron its column of W_in and its row of W_out, a feature its row of the encoder and its
row of the decoder. So analyses of neurons take features with `units="features"`, on a model from
`ms.with_dictionaries`; results keep the axis `neuron`.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.dictionary_places import layer_dictionary
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import Site

Units = Literal["neurons", "features"]
UNITS: tuple[Units, ...] = get_args(Units)
_NORMALISATIONS = (None, "LN", "LNPre", "RMS", "RMSPre")
_REFUSED = {
    "attn_only": "has no MLP (attn_only), so it has no neurons; take a model with one",
    "gated_mlp": "has a gated MLP, in which a neuron has two keys; take a model whose MLP is W_in and W_out",
    "num_experts": "has a mixture of experts as MLP; take a model whose MLP is W_in and W_out",
    "parallel_attn_mlp": "has its MLP beside the attention; take a model whose MLP comes after it",
    "use_normalization_before_and_after": "normalises what its MLP writes; take a model that adds it as it is",
}


def mlp_block(model: ModelLike, layer: int) -> Any:
    """The block of a layer whose MLP has one key and one value per neuron.

    Raises InputError where the layer does not exist; its MLP is missing, gated, of several experts, beside the
    attention or normalised after it; or a weight of the model holds NaN.

    >>> ms.analyses.mlp_block(model, 0).mlp.W_in.shape
    torch.Size([32, 64])
    """
    model = resolve_model(model)
    cfg = model.cfg
    in_range("layer", layer, 0, cfg.n_layers - 1)
    for name, words in _REFUSED.items():
        if getattr(cfg, name, None):
            raise InputError(f"the model {words}")
    one_of("the model's normalization_type", cfg.normalization_type, _NORMALISATIONS)
    for name, value in model.named_parameters():
        if value.isnan().any():
            raise InputError(f"the weight {name} of the model holds NaN; take an earlier checkpoint")
    return model.blocks[layer]


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerUnits:
    """The units of a layer: the site of their activations, and what each of them writes, `bias` beside them all.

    `mlp` is True where they make up the MLP alone, so that the stream before it and they give the stream after it.
    """

    site: Site
    value: Float[Tensor, "neuron d_model"]
    bias: Float[Tensor, " d_model"]
    mlp: bool = True

    def __len__(self) -> int:
        return len(self.value)


def layer_units(model: HookedModel, layer: int, units: Units = "neurons") -> LayerUnits:
    """The units of a layer; InputError where it has none, for neurons as `mlp_block`."""
    one_of("units", units, UNITS)
    if units == "neurons":
        mlp = mlp_block(model, layer).mlp
        return LayerUnits(site=Site(kind="post", layer=layer), value=mlp.W_out, bias=mlp.b_out)
    in_range("layer", layer, 0, model.cfg.n_layers - 1)
    dictionary = layer_dictionary(model, layer)
    site = Site(kind="feature", layer=layer)
    return LayerUnits(site=site, value=dictionary.w_dec, bias=dictionary.b_dec, mlp=False)


_KEYED = ("mlp_in", "resid_mid")
"""Activations a dictionary must read for its keys to be split into tokens, positions and heads."""


def has_keys(model: HookedModel, layer: int, units: Units = "neurons") -> bool:
    """True if the keys of the units read the stream before the MLP; raises InputError where there are no features."""
    return units == "neurons" or layer_dictionary(model, layer).reads in _KEYED


def keys_before_norm(
    model: HookedModel, layer: int, units: Units = "neurons"
) -> tuple[Float[Tensor, "neuron d_model"], Float[Tensor, " neuron"]]:
    """The keys of units as they read the stream before the MLP, and what they get from biases there; float64.

    Raises InputError where the block is refused (`mlp_block`), or features read something else.
    """
    block, kind = mlp_block(model, layer), model.cfg.normalization_type
    if units == "neurons":
        key, bias = block.mlp.W_in.double().T, block.mlp.b_in.double()
    else:
        dictionary = layer_dictionary(model, layer)
        if dictionary.reads not in _KEYED:
            raise InputError(
                f"keys are read before the MLP, and {dictionary.name} reads {dictionary.reads}; take a dictionary that "
                "reads mlp_in or resid_mid, or read values, activity and effects alone"
            )
        key, bias = dictionary.w_enc.double(), dictionary.b_enc.double()
        bias = bias if dictionary.centre is None else bias - key @ dictionary.centre.double()
        kind = kind if dictionary.reads == "mlp_in" else None
    if kind == "LN" and units == "neurons":
        bias = bias + key @ block.ln2.b.double()
    if kind in ("LN", "RMS") and units == "neurons":  # features read what is normalised before its gain
        key = key * block.ln2.w.double()
    return (key - key.mean(-1, keepdim=True) if kind in ("LN", "LNPre") else key), bias
