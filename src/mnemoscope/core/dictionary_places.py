"""The dictionaries that a model has, and the hook points of their features and errors."""

from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import OF_DICTIONARY, Kind, Site

PASSED = {"feature": "hook_sae_acts_post", "error": "hook_sae_error"}
"""SAELens's names, below the hook point at which a dictionary writes."""


def dictionary_points(dictionary: Dictionary) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two hook points of the features, and the two of the error, in the order in which they are passed."""
    block = f"blocks.{dictionary.layer}"
    written = f"{block}.hook_{dictionary.writes}"
    features, errors = ((f"{written}.{end}", f"{block}.hook_{kind}") for kind, end in PASSED.items())
    return features, errors


def model_dictionaries(model: HookedModel) -> dict[int, Dictionary]:
    """The dictionaries of a model by layer; none if `ms.with_dictionaries` gave it none."""
    return {dictionary.layer: dictionary for dictionary in getattr(model, "dictionaries", ())}


def layer_dictionary(model: HookedModel, layer: int | None) -> Dictionary:
    """The dictionary of a layer; InputError where it has none."""
    found = model_dictionaries(model)
    if layer not in found:
        have = ", ".join(f"L{each}" for each in sorted(found)) or "none"
        raise InputError(
            f"features and errors need a layer with a dictionary; got L{layer}, and those that have one are: {have}; "
            "give the model one with ms.with_dictionaries(model, [dictionary])"
        )
    return found[layer]


def n_neurons(model: HookedModel, kind: Kind, layer: int | None) -> int:
    """Number of neurons at a kind of site in a layer, or of features."""
    return layer_dictionary(model, layer).n_features if kind == "feature" else model.cfg.d_mlp or 0


def site_layers(model: HookedModel, kind: Kind) -> list[int]:
    """The layers in which a kind exists; InputError where it needs dictionaries and there are none."""
    if kind not in OF_DICTIONARY:
        return list(range(model.cfg.n_layers))
    return sorted(model_dictionaries(model)) or [layer_dictionary(model, None).layer]


def written_site(model: HookedModel, layer: int) -> Site:
    """The activation that features and error of a layer add up to."""
    return Site(kind=layer_dictionary(model, layer).writes, layer=layer)
