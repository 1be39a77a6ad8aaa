"""Attention without a softmax: the scores themselves weigh the values, and they are not scaled.

    z = Σ_t (q · k_t) v_t        over the positions that the query may attend to

A row of the pattern may hold negative weights and adds up to anything. Hooks, weights and their names are those of
TransformerLens's attention.
"""

from functools import cache
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor


class _Linear:
    """The forward pass, before any class of attention with TransformerLens's hooks."""

    linear = True

    def forward(
        self: Any,
        query_input: Float[Tensor, "batch pos *head d_model"],
        key_input: Float[Tensor, "batch pos *head d_model"],
        value_input: Float[Tensor, "batch pos *head d_model"],
        **_: Any,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The addition of attention to the residual stream; there is no cache of earlier keys and no padding."""
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        scores = self.calculate_attention_scores(q, k)
        scores = self.hook_attn_scores(scores.tril() if self.cfg.attention_dir == "causal" else scores)
        z = self.calculate_z_scores(v, self.hook_pattern(scores))
        written = einsum(z, self.W_O, "batch pos head width, head width d_model -> batch pos head d_model")
        if self.cfg.use_attn_result:
            written = self.hook_result(written)
        return written.sum(2) + self.b_O


@cache
def _linear(kind: type) -> type:
    return type("LinearAttention", (_Linear, kind), {})


@torch.no_grad()
def linearised(attention: Any, layer: int) -> Any:
    """Linear attention with the parameters of softmax attention."""
    result = _linear(type(attention))(attention.cfg, layer_id=layer)
    for name, parameter in attention.named_parameters():
        getattr(result, name).data = parameter.data
    return result
