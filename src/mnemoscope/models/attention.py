"""Attention other than TransformerLens's, with its hooks and names: linear, mixed, relative, or blind to padding.

Linear attention has no softmax: the scores themselves weigh the values, and they are not scaled.

    z = Σ_t (q · k_t) v_t        over the positions that the query may attend to

A row of its pattern may hold negative weights and adds up to anything. Mixed attention has the pattern
c softmax + (1 - c) at those positions. No query attends to a position that holds the masked token: its score is minus
infinity (0 in linear attention). A query that may attend to nothing attends to nothing.

Relative attention (Shaw, Uszkoreit & Vaswani 2018) has a learned vector for each distance, which the keys of all heads
of a layer carry, and no positions in the residual stream:

    scores_ij = q_i · (k_j + r_(i-j)) / sqrt(d_head)

The vectors are the parameter `blocks.*.attn.W_rel`, row 0 for a position's distance from itself. `hook_k` has keys
without them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, masked_token
from mnemoscope.engine.block import hide_keys, mix_pattern, visible_keys
from mnemoscope.engine.relative_attention import relative_products
from mnemoscope.models.lens import HookedTransformer

LINEAR = "linear_attention"
"""Key of a configuration: whether attention has no softmax."""
MIX = "attention_mix"
"""Key of a configuration: share of the softmax in the pattern."""
MASKED = "masked_token"
"""Key of a configuration: token to which no position attends."""
RELATIVE = "relative_positions"
"""Key of a configuration: whether keys carry a vector of their distance from the query."""


@dataclass(eq=False)
class Padding:
    """Places of the masked token in the tokens that the model read last."""

    token: int
    places: Bool[Tensor, "batch pos"] | None = None

    def mark(self, tokens: Int[Tensor, "batch pos"]) -> None:
        """Note where the token is."""
        self.places = tokens == self.token


class _Attention:
    """The forward pass, before any class of attention with TransformerLens's hooks."""

    def forward(
        self: Any,
        query_input: Float[Tensor, "batch pos *head d_model"],
        key_input: Float[Tensor, "batch pos *head d_model"],
        value_input: Float[Tensor, "batch pos *head d_model"],
        past_kv_cache_entry: Any = None,
        attention_mask: Int[Tensor, "batch pos"] | None = None,
        **_: Any,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The addition of attention to the residual stream; padding, which the mask has as 0, is not attended to."""
        if past_kv_cache_entry is not None:
            raise InputError("past_kv_cache must be None with attention of this kind; got one: give whole sequences")
        padding = None if self.padding is None else self.padding.places
        if attention_mask is not None:
            padding = (attention_mask == 0) | (False if padding is None else padding)
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        places = torch.arange(q.shape[1], device=q.device)
        seen = visible_keys(places, k.shape[1], causal=self.cfg.attention_dir == "causal", padding=padding)
        scores = self.calculate_attention_scores(q, k)
        if self.W_rel is not None:
            scores = scores + relative_products(q.transpose(1, 2), self.W_rel, places, k.shape[1]) / self.attn_scale
        scores = hide_keys(scores, seen, linear=self.linear)
        scores = pattern = self.hook_attn_scores(scores)
        if not self.linear:
            pattern = mix_pattern(scores.softmax(-1).nan_to_num(), scores, self.mix)
        z = self.calculate_z_scores(v, self.hook_pattern(pattern))
        written = einsum(z, self.W_O, "batch pos head width, head width d_model -> batch pos head d_model")
        if self.cfg.use_attn_result:
            written = self.hook_result(written)
        return written.sum(2) + self.b_O


class _Embed:
    """The token embedding, which notes where the masked token is."""

    def forward(self: Any, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """A row of W_E for each token."""
        self.padding.mark(tokens)
        return super().forward(tokens)  # pyright: ignore


@cache
def _before(kind: type, other: type) -> type:
    return type(kind.__name__[1:], (kind, other), {})


def set_attention(
    model: HookedTransformer,
    *,
    linear: bool = False,
    mix: float = 1.0,
    masked: int | None = None,
    relative: bool = False,
) -> None:
    """Give a model attention of this kind; its parameters stay, and vectors of distances start at zero."""
    padding = None if masked is None else Padding(masked)
    for layer, block in enumerate(model.blocks):
        attention: Any = _like(_Attention, block.attn, model.cfg, layer_id=layer)
        attention.linear, attention.mix, attention.padding = linear, mix, padding
        width = (model.cfg.n_ctx, model.cfg.d_head)
        attention.W_rel = nn.Parameter(torch.zeros(width).to(attention.W_Q)) if relative else None
        block.add_module("attn", attention)
    if padding is not None:
        embed: Any = _like(_Embed, model.embed, model.cfg)
        embed.padding = padding
        model.add_module("embed", embed)
    model.setup()


@torch.no_grad()
def _like(kind: type, module: Any, *arguments: Any, **options: Any) -> Any:
    """A module of another kind with the same parameters."""
    result = _before(kind, type(module))(*arguments, **options)
    for name, parameter in module.named_parameters():
        getattr(result, name).data = parameter.data
    return result


def run_from_layer(model: HookedModel, layer: int, inputs: Tensor) -> Callable[[Tensor], Tensor]:
    """The model from a layer on, as a function of residual streams of these inputs, once or several times over.

    After the last layer streams may be of any places, since no position attends to another any more.
    """

    def run(stream: Tensor) -> Tensor:
        if masked_token(model) is not None and layer < model.cfg.n_layers:
            cast("Any", model).embed.padding.mark(inputs.repeat(len(stream) // len(inputs), 1))
        return model(stream, start_at_layer=layer)

    return run
