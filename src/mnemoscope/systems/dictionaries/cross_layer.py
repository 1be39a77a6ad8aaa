"""Cross-layer transcoders: features that read one MLP's input and write the outputs of that MLP and of all later ones.

With x_m and y_m what the MLP of layer m reads and writes, layer l has features f_l, and

    f_l = activation(W_enc^l x_l + b_enc^l),   written_m = sum over l <= m of W_dec^(l, m)^T f_l + b_dec^m

is trained to be y_m in every layer at once (Ameisen et al. 2025, "Circuit tracing"). The directions of a feature have
unit norm together, so that a penalty on its activation is the price of all that it writes.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from mnemoscope import DictionaryRecipe, generator
from mnemoscope.core import activate
from mnemoscope.systems.dictionaries.hops import Change, Stream


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossLayerTranscoder:
    """Features of every layer, and what each writes into its own and later layers; `w_dec` is zero for earlier ones."""

    w_enc: Float[Tensor, "layer feature d_model"]
    b_enc: Float[Tensor, "layer feature"]
    w_dec: Float[Tensor, "layer feature written d_model"]
    b_dec: Float[Tensor, "written d_model"]
    k: int | None = None
    """Features of a layer that can be active at once; None: any number."""

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.w_enc)

    def encode(self, layer: int, read: Float[Tensor, "row d_model"]) -> Float[Tensor, "row feature"]:
        """The features of a layer."""
        pre = F.linear(read, self.w_enc[layer], self.b_enc[layer])
        return activate(pre, "relu" if self.k is None else "topk", k=self.k)

    def decode(self, layer: int, features: Float[Tensor, "row feature"]) -> Float[Tensor, "row written d_model"]:
        """The outputs of the features of a layer in every layer, without biases."""
        return torch.einsum("rf,fwd->rwd", features, self.w_dec[layer])

    def contributions(self, reads: Float[Tensor, "layer row d_model"]) -> Float[Tensor, "layer row written d_model"]:
        """The outputs of the features of every layer in every layer, from the streams that the layers read."""
        return torch.stack([self.decode(layer, self.encode(layer, read)) for layer, read in enumerate(reads)])

    def run(self, stream: Stream, change: Change | None = None) -> Stream:
        """The last stream of a model without attention, with these features in the place of its MLPs.

        `change` acts on what is written in a layer; what features of that layer write into later ones stays.
        """
        written = self.b_dec.expand(len(stream), *self.b_dec.shape)
        for layer in range(self.n_layers):
            written = written + self.decode(layer, self.encode(layer, stream))
            here = written[:, layer]
            stream = stream + (here if change is None else change(layer, here))
        return stream


def train_cross_layer(
    reads: Float[Tensor, "layer row d_model"],
    writes: Float[Tensor, "layer row d_model"],
    *,
    n_features: int,
    recipe: DictionaryRecipe,
    seed: int,
) -> CrossLayerTranscoder:
    """Train one on all rows at once, by Adam; every layer counts alike, by its variance.

    Of the recipe it takes `activation`, `k`, `l1`, `n_steps` and `learning_rate`, which falls to zero over the second
    half. The same seed gives the same numbers.
    """
    n_layers, _, d = reads.shape
    draws = generator(seed, "cross-layer transcoder")
    first = torch.randn(n_layers, n_features, n_layers, d, generator=draws, dtype=torch.float32)
    later = (torch.arange(n_layers)[None] >= torch.arange(n_layers)[:, None]).float()[:, None, :, None]
    rows = F.normalize(torch.randn(n_layers, n_features, d, generator=draws, dtype=torch.float32), dim=-1)
    w_enc, b_enc, w_dec, b_dec = (
        part.requires_grad_() for part in (rows, torch.zeros(n_layers, n_features), first, writes.mean(1).clone())
    )
    variance = (writes - writes.mean(1, keepdim=True)).square().sum(-1).mean(1)
    optimiser = torch.optim.Adam([w_enc, b_enc, w_dec, b_dec], fused=True)
    k = recipe.k if recipe.activation == "topk" else None

    def together() -> CrossLayerTranscoder:
        unit = F.normalize((w_dec * later).flatten(2), dim=-1).view_as(w_dec)
        return CrossLayerTranscoder(w_enc=w_enc, b_enc=b_enc, w_dec=unit, b_dec=b_dec, k=k)

    with torch.enable_grad():
        for step in range(recipe.n_steps):
            optimiser.param_groups[0]["lr"] = recipe.learning_rate * min(1, 2 - 2 * (step + 1) / recipe.n_steps)
            current = together()
            features = [current.encode(layer, read) for layer, read in enumerate(reads)]
            written = b_dec + torch.stack([current.decode(layer, each) for layer, each in enumerate(features)]).sum(0)
            loss = ((written.transpose(0, 1) - writes).square().sum(-1).mean(1) / variance).sum()
            if k is None:
                loss = loss + recipe.l1 * torch.stack(features).sum(-1).mean(1).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        found = together()
    return CrossLayerTranscoder(
        w_enc=found.w_enc.detach(), b_enc=found.b_enc.detach(), w_dec=found.w_dec, b_dec=found.b_dec.detach(), k=k
    )
