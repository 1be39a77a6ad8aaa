"""Attention of the first layer, looked up on a CPU where a task has few tokens and positions.

What enters the first layer is one of few *cells*, a token at a position. Scores between cells, and what a cell is worth
to whoever attends to it, are computed once for all sequences; a pass then only picks them. Equal to computing them for
every sequence to 1e-5 (tested), in a fraction of the time.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Inputs
from mnemoscope.core.layers import projected, softmax
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.patching.packed import Layer

MAX_CELLS = 128
"""Tokens times positions up to which tables pay."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Tables over cells, and which cells some sequences are made of.

    Attributes:
        stream: What enters the first layer.
        scores: Of every head, of a query cell for a key cell; minus infinity for what comes later.
        values: Of every head.
        at: The cell at every position.
        layer: The first layer.
    """

    stream: Float[Tensor, "cell d_model"]
    scores: Float[Tensor, "head_index query_cell key_cell"]
    values: Float[Tensor, "head_index cell d_head"]
    at: Int[Tensor, "batch pos"]
    layer: Layer

    def attended(
        self, queries: Int[Tensor, " query"] | None
    ) -> tuple[Float[Tensor, "batch head_index query pos"], Float[Tensor, "batch head_index pos d_head"]]:
        """Scores of some queries, or of all, for all keys; and the values of these."""
        n_heads, n_cells, _ = self.scores.shape
        head = torch.arange(n_heads, device=self.at.device)[:, None]
        own = self.at if queries is None else self.at[:, queries]
        pairs = own[:, :, None] * n_cells + self.at[:, None]
        scores = self.scores.flatten().take(pairs[:, None] + head[:, None] * n_cells**2)
        return scores, F.embedding(self.at[:, None] + head * n_cells, self.values.flatten(0, 1))

    def after_attention(self, where: Bool[Tensor, "batch pos"]) -> Float[Tensor, "place d_model"]:
        """The stream at some places after attention has added to it."""
        n_heads, n_cells, _ = self.scores.shape
        rows, _ = where.nonzero(as_tuple=True)
        own, seen = self.at[where], self.at[rows]
        head = torch.arange(n_heads, device=self.at.device)[:, None]
        pattern = softmax(self.scores.flatten().take((own[:, None] * n_cells + seen)[:, None] + head * n_cells**2))
        written = (self.values @ self.layer.w_o).flatten(0, 1)
        taken = (seen[:, None] + head * n_cells).flatten(1)
        added = F.embedding_bag(taken, written, per_sample_weights=pattern.flatten(1), mode="sum")
        return F.embedding(own, self.stream) + added + self.layer.b_o


def cells_of(model: HookedModel, layer: Layer, inputs: Inputs) -> Cells | None:
    """The tables of a plain model for some tokens; None where they would not pay.

    On other devices than a CPU nothing is looked up.

    Args:
        model: Whose embedding and positions enter the first layer.
        layer: Its first layer.
        inputs: Tokens.
    """
    weights: Any = model
    token, n_pos = weights.W_E, inputs.shape[1]
    n_cells = len(token) * n_pos
    exact = token.dtype in (torch.float32, torch.float64)
    if n_cells > min(MAX_CELLS, inputs.numel()) or not exact or token.device.type != "cpu":
        return None
    stream = (token[:, None] + weights.W_pos[:n_pos]).flatten(0, 1)
    normed, split = layer.ln1(stream), (len(layer.w_o), -1)
    q = projected(normed, layer.w_q, layer.b_q).unflatten(-1, split).transpose(0, 1)
    k, v = projected(normed, layer.w_kv, layer.b_kv).unflatten(-1, (2, *split)).permute(1, 2, 0, 3)
    pos = torch.arange(n_pos, device=token.device)
    place = pos.repeat(len(token))
    scores = (q @ k.mT).masked_fill(place > place[:, None], -math.inf)
    return Cells(stream=stream, scores=scores, values=v, at=inputs.to(token.device) * n_pos + pos, layer=layer)
