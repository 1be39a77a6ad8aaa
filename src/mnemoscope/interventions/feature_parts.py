"""Features of dictionaries as parts of a model's graph, in the place of the MLP whose output they reconstruct.

    output of the MLP = Σ over features f · w_dec + rest

A feature is a part: it reads the stream that the MLP reads, and writes f · w_dec. One more part, `error`, writes the
rest, which no feature writes: the error of the reconstruction, the bias of the decoder, and what a skip connection
writes. It reads the same stream. Parts of one layer do not read each other, so that a change of what one reads changes
this one alone. TopK features compete: one whose input is changed is compared with all others on that input.

With G the gradient of a metric at the MLP's output, first-order effects into a feature and the rest are products of
matrices, and add up to that into the MLP:

    ∂metric / ∂(input of f) = (w_dec · G) [f > 0] w_enc ∂read / ∂stream
    ∂metric / ∂(input of the rest) = G ∂MLP / ∂stream - Σ over features of the above

*Does not show* what a feature does where the run goes out of the range in which it is active or not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.dictionary import Dictionary, activate
from mnemoscope.core.dictionary_places import layer_dictionary, model_dictionaries
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.engine.block import Block
from mnemoscope.engine.pointwise import Norm

MOST_EDGES = 2**20
"""Edges of a graph with features that is still listed as a whole."""
AT_ONCE = 64
"""Features whose gradients are pulled back at once."""
_READ = ("mlp_in", "resid_mid", "mlp_out")


def mlp_parts(model: HookedModel, layer: int) -> list[Site]:
    """The parts of an MLP in the graph: itself, or features of its dictionary and the `error`; none without MLPs."""
    if model.cfg.attn_only:
        return []
    dictionary = model_dictionaries(model).get(layer)
    if dictionary is None:
        return [Site(kind="mlp_out", layer=layer)]
    features = [Site(kind="feature", layer=layer, neuron=number) for number in range(dictionary.n_features)]
    return [*features, Site(kind="error", layer=layer)]


def check_feature_parts(model: HookedModel) -> None:
    """Refuse dictionaries that have no place in the graph."""
    found = model_dictionaries(model)
    for dictionary in found.values():
        if dictionary.writes != "mlp_out" or dictionary.reads not in _READ:
            raise InputError(
                "edges have features as parts if a dictionary writes mlp_out and reads mlp_in, resid_mid or mlp_out; "
                f"got {dictionary}: take a transcoder of the MLP, or the model without dictionaries"
            )
    if found and not getattr(model, "has_errors", True):
        raise InputError("edges need the errors of dictionaries, which are parts; give with_dictionaries error=True")


def check_listable(model: HookedModel) -> None:
    """Refuse a graph with features that has too many edges to be listed."""
    n_edges = _count_edges(model) if model_dictionaries(model) else 0
    if n_edges > MOST_EDGES:
        raise InputError(
            f"the graph has {n_edges:,} edges with all features, above {MOST_EDGES:,}; estimate some: "
            "attribute_edges(..., chosen=[...]), or give fewer layers dictionaries"
        )


def _count_edges(model: HookedModel) -> int:
    """Number of edges, embeddings apart."""
    n_heads, found, n_edges, written = model.cfg.n_heads, model_dictionaries(model), 0, 2
    for layer in range(model.cfg.n_layers):
        n_parts = found[layer].n_features + 1 if layer in found else 1
        n_edges += 3 * n_heads * written + n_parts * (written + n_heads)
        written += n_heads + n_parts
    return n_edges + written


def refuse_features(model: HookedModel, why: str) -> None:
    """Refuse a model whose graph has features as parts, where only the engine can run them."""
    if model_dictionaries(model):
        raise InputError(
            f"edges of features are patched by the engine alone; hooks are needed here ({why}): estimate them with "
            "attribute_edges, or take the model without dictionaries"
        )


def written_hooks(site: Site) -> tuple[str, ...]:
    """The hook points from which the output of a writer follows."""
    if site.kind not in ("feature", "error"):
        return (site.hook,)
    return Site(kind="mlp_out", layer=site.layer).hook, Site(kind="feature", layer=site.layer).hook


def part_outputs(
    model: HookedModel, layer: int, found: Mapping[str, Tensor]
) -> Float[Tensor, "part prompt pos d_model"]:
    """The contribution of each feature of a layer and of the rest, from activations by hook point or their changes."""
    whole, features = (found[name] for name in written_hooks(Site(kind="error", layer=layer)))
    w_dec = layer_dictionary(model, layer).w_dec
    each = einsum(features, w_dec, "prompt pos feature, feature d_model -> feature prompt pos d_model")
    return torch.cat((each, (whole - features @ w_dec)[None]))


def part_output(
    block: Block, dictionary: Dictionary, site: Site, stream: Float[Tensor, "*rows d_model"]
) -> Float[Tensor, "*rows d_model"]:
    """The output of one part of an MLP, from the stream that it reads."""
    if site.kind == "error":
        features, whole = encode_stream(block, dictionary, stream)
        return whole - features @ dictionary.w_dec
    number = site.neuron
    assert isinstance(number, int)
    own = slice(number, number + 1)
    read = _read(block, dictionary, stream)
    if dictionary.k is not None:
        return dictionary.encode(read)[..., own] * dictionary.w_dec[number]
    read = read if dictionary.centre is None else read - dictionary.centre
    pre = torch.nn.functional.linear(read, dictionary.w_enc[own], dictionary.b_enc[own])
    threshold = None if dictionary.threshold is None else dictionary.threshold[own]
    return activate(pre, dictionary.activation, threshold=threshold) * dictionary.w_dec[number]


def encode_stream(
    block: Block, dictionary: Dictionary, stream: Float[Tensor, "*rows d_model"]
) -> tuple[Float[Tensor, "*rows feature"], Float[Tensor, "*rows d_model"]]:
    """The features, and the output of the MLP, from the stream that the MLP reads."""
    assert block.mlp is not None
    whole = block.mlp(block.ln2(stream))
    return dictionary.encode(whole if dictionary.reads == "mlp_out" else _read(block, dictionary, stream)), whole


def _read(block: Block, dictionary: Dictionary, stream: Tensor) -> Tensor:
    """The activation that the encoder reads."""
    if dictionary.reads == "mlp_out":
        assert block.mlp is not None
        return block.mlp(block.ln2(stream))
    return block.ln2.without_weights()(stream) if dictionary.reads == "mlp_in" else stream


@dataclass(frozen=True, kw_only=True)
class TracedFeatures:
    """The features of a layer in a traced run, and the gradient of a metric there.

    `stream` is what the MLP reads, and `whole` what it writes.
    """

    dictionary: Dictionary
    norm: Norm
    features: Float[Tensor, "prompt pos feature"]
    gradient: Float[Tensor, "prompt pos feature"]
    stream: Float[Tensor, "prompt pos d_model"]
    whole: Float[Tensor, "prompt pos d_model"]

    def at_inputs(
        self, wanted: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Float[Tensor, "own prompt pos d_model"]]]:
        """Numbers of features, and the gradient at the input of each."""
        gated = self.gradient * (self.features > 0)
        for first in range(0, len(wanted), AT_ONCE):
            own = list(wanted[first : first + AT_ONCE])
            rows, shape = self.dictionary.w_enc[own], "prompt pos own, own d_model -> own prompt pos d_model"
            yield own, self._pull_back(einsum(gated[..., own], rows, shape))

    def total(self) -> Float[Tensor, "prompt pos d_model"]:
        """The sum of these gradients over all features."""
        at_read = (self.gradient * (self.features > 0)) @ self.dictionary.w_enc
        return self._pull_back(at_read[None])[0]

    def _pull_back(self, gradient: Float[Tensor, "own prompt pos d_model"]) -> Float[Tensor, "own prompt pos d_model"]:
        """Gradients at what the encoder reads, taken back to the stream."""
        if self.dictionary.reads == "mlp_in":
            return self.norm.pull_back(self.stream.detach(), gradient.detach())
        if self.dictionary.reads == "resid_mid":
            return gradient.detach()
        options: dict[str, Any] = {"retain_graph": True, "is_grads_batched": True, "allow_unused": True}
        (found,) = torch.autograd.grad(self.whole, self.stream, gradient.detach(), **options)
        return self.stream.new_zeros(len(gradient), *self.stream.shape) if found is None else found
