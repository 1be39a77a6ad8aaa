"""A block with TransformerLens's hooks, weights and, to the last bit, its numbers.

q = x W_Q + b_Q, k and v alike      scores = q·k / attn_scale      pattern = softmax over the keys that may be seen
z = Σ_key pattern v                 result = z W_O                 output = Σ_head result + b_O
"""

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor, nn

from mnemoscope.engine.block import after_attention, attention_scores, rotate, visible_keys
from mnemoscope.engine.pointwise import project
from mnemoscope.models.hooked.config import HookedTransformerConfig
from mnemoscope.models.hooked.layers import (
    Mlp,
    Norm,
    distance_penalty,
    laid_out,
    normalisation,
    offset_positions,
    parameter,
    waves,
)
from mnemoscope.models.hooked.points import HookPoint, passing
from mnemoscope.models.lens import TransformerLensKeyValueCacheEntry

_FIRST_POSITIONS = 2048  # rotary angles are kept for so many; longer inputs make more
_Input = Float[Tensor, "batch pos *head d_model"]
_Heads = Float[Tensor, "batch pos head d_head"]
_KeyInput = Float[Tensor, "batch pos *key_head d_model"]
_Keys = Float[Tensor, "batch key key_head d_head"]
_Z = Float[Tensor, "batch query head d_head"]
_Scores = Float[Tensor, "batch head query key"]


class Attention(nn.Module):
    """Attention of one block; every head has its own keys and values."""

    mask: Tensor
    IGNORE: Tensor
    rotary_sin: Tensor
    rotary_cos: Tensor

    def __init__(self, cfg: HookedTransformerConfig, attn_type: str = "global", layer_id: int | None = None):
        super().__init__()
        self.cfg, self.attn_type, self.layer_id = cfg, attn_type, layer_id
        self.W_Q = parameter(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_O = parameter(cfg, cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_Q = parameter(cfg, cfg.n_heads, cfg.d_head, zero=True)
        self.b_O = parameter(cfg, cfg.d_model, zero=True)
        self.q_norm = Norm(cfg, "RMS", cfg.d_head) if cfg.use_qk_norm else None
        self.k_norm = Norm(cfg, "RMS", cfg.d_head) if cfg.use_qk_norm else None
        self.register_buffer("mask", torch.empty((0, 0), dtype=torch.bool))
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))
        self.attn_scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        if cfg.scale_attn_by_inverse_layer_idx:
            self.attn_scale *= (layer_id or 0) + 1
        self.hook_k, self.hook_q, self.hook_v, self.hook_z = (HookPoint() for _ in "kqvz")
        self.hook_attn_scores, self.hook_pattern, self.hook_result = (HookPoint() for _ in range(3))
        if cfg.positional_embedding_type == "shortformer":
            self.hook_attn_input = HookPoint()
        elif cfg.positional_embedding_type == "rotary":
            self.hook_rot_k, self.hook_rot_q = HookPoint(), HookPoint()
            for name, wave in zip(("sin", "cos"), waves(cfg, min(cfg.n_ctx, _FIRST_POSITIONS)), strict=True):
                self.register_buffer(f"rotary_{name}", wave)
        self._make_keys_and_values()

    def _make_keys_and_values(self) -> None:
        """Make the weights of keys and values."""
        cfg = self.cfg
        self.W_K, self.W_V = (parameter(cfg, cfg.n_heads, cfg.d_model, cfg.d_head) for _ in "KV")
        self.b_K, self.b_V = (parameter(cfg, cfg.n_heads, cfg.d_head, zero=True) for _ in "KV")

    def forward(
        self,
        query_input: _Input,
        key_input: _KeyInput,
        value_input: _KeyInput,
        past_kv_cache_entry: TransformerLensKeyValueCacheEntry | None = None,
        attention_mask: Int[Tensor, "batch all_pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Contribution of attention to the residual stream.

        Queries, keys and values read one input for all heads, or one for each. Unless it is frozen, the cache entry of
        earlier positions takes up the new keys and values. The mask is 1 for tokens and 0 for padding, from the first
        cached position on.
        """
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        if self.cfg.clip_qkv is not None:
            q, k, v = (x.clamp(-self.cfg.clip_qkv, self.cfg.clip_qkv) for x in (q, k, v))
        offset = 0
        if past_kv_cache_entry is not None:
            offset = past_kv_cache_entry.past_keys.shape[1]
            k, v = past_kv_cache_entry.append(k, v)
        if self.cfg.positional_embedding_type == "rotary":
            q = self.hook_rot_q(self._rotated(q, offset, attention_mask))
            k = self.hook_rot_k(self._rotated(k, 0, attention_mask))
        scores = self.calculate_attention_scores(q, k)
        if self.cfg.positional_embedding_type == "alibi":
            penalty = distance_penalty(self.cfg.n_heads, scores.shape[-1], scores.device)
            scores = (scores + penalty[:, -scores.shape[-2] :]).to(scores.dtype)
        if self.cfg.attention_dir == "causal":
            places = torch.arange(offset, offset + q.shape[1], device=q.device)
            may_see = visible_keys(
                places, k.shape[1], window=self.cfg.window_size if self.attn_type == "local" else None
            )
            may_see = may_see if attention_mask is None else may_see & attention_mask.bool()[:, None, None]
            scores = torch.where(may_see, scores, self.IGNORE)
        pattern = self.hook_attn_scores(scores).softmax(-1)
        pattern = self.hook_pattern(torch.where(pattern.isnan(), torch.zeros_like(pattern), pattern))
        return self._written(self.calculate_z_scores(v, pattern.to(v.dtype)))

    def calculate_qkv_matrices(
        self, query_input: _Input, key_input: _KeyInput, value_input: _KeyInput
    ) -> tuple[_Heads, _Keys, _Keys]:
        """Queries, keys and values."""
        (w_k, b_k), (w_v, b_v) = self._keys_and_values()
        q = self.hook_q(_into_heads(query_input, self.W_Q, self.b_Q))
        k = self.hook_k(_into_heads(key_input, w_k, b_k))
        v = self.hook_v(_into_heads(value_input, w_v, b_v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q.flatten(0, 2)).view_as(q), self.k_norm(k.flatten(0, 2)).view_as(k)
        return q, k, v

    def _keys_and_values(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Weight and bias of keys, then of values, for as many heads as are computed."""
        return (self.W_K, self.b_K), (self.W_V, self.b_V)

    def calculate_attention_scores(self, q: _Z, k: _Keys) -> _Scores:
        """q·k / attn_scale."""
        q, k = q.transpose(1, 2), self._of_each(k).transpose(1, 2)
        return attention_scores(q, k, scale=self.attn_scale, soft_cap=self.cfg.attn_scores_soft_cap)

    def calculate_z_scores(self, v: _Keys, pattern: _Scores) -> _Z:
        """Head outputs z: values weighted by the pattern."""
        return self.hook_z((pattern @ self._of_each(v).transpose(1, 2)).transpose(1, 2))

    def _of_each(self, x: _Keys) -> Float[Tensor, "batch key head d_head"]:
        """Keys or values of each query head; heads of a group get the same."""
        n_shared = self.cfg.n_heads // x.shape[2]
        return x if n_shared == 1 else x.repeat_interleave(n_shared, 2)

    def _written(self, z: _Heads) -> Float[Tensor, "batch pos d_model"]:
        """Contribution of all heads to the residual stream, with the bias."""
        z = z.to(self.W_O.dtype)
        if self.cfg.use_attn_result:
            return self.hook_result((z[..., None] * self.W_O).sum(-2)).sum(2) + self.b_O
        return project(z.flatten(2), laid_out(self.W_O.flatten(0, 1)), self.b_O)

    def _rotated(self, x: _Heads, offset: int, mask: Int[Tensor, "batch all_pos"] | None) -> _Heads:
        """Apply rotary positions to queries or keys."""
        if (needed := offset + x.shape[1]) > len(self.rotary_cos):
            sin, cos = waves(self.cfg, min(self.cfg.n_ctx, max(needed, 2 * len(self.rotary_cos))))
            self.rotary_sin, self.rotary_cos = sin.to(x.device), cos.to(x.device)
        at = slice(offset, offset + x.shape[1]) if mask is None else offset_positions(offset, mask).to(x.device)
        cos, sin = self.rotary_cos[at].unsqueeze(-2), self.rotary_sin[at].unsqueeze(-2)
        result = rotate(x, cos, sin, adjacent=self.cfg.rotary_adjacent_pairs)
        return torch.cat((result, x[..., x.shape[-1] :]), -1)  # of width 0, for TransformerLens's layout of gradients

    def _load_from_state_dict(self, state_dict, prefix, *rest) -> None:  # pyright: ignore
        """Keep the model's own buffers where those on file have another length: other releases, or longer inputs."""
        own = {prefix + name: value for name, value in self.named_buffers(recurse=False)}
        kept = {name: value for name, value in own.items() if state_dict.get(name, value).shape != value.shape}
        super()._load_from_state_dict({**state_dict, **kept}, prefix, *rest)


def _of_groups(name: str) -> property:
    """A property: a weight of groups, repeated for each of their heads."""
    return property(lambda self: getattr(self, name).repeat_interleave(self.repeat_kv_heads, 0))


class GroupedQueryAttention(Attention):
    """Attention whose heads share keys and values in groups; W_K, W_V, b_K and b_V repeat them for each head."""

    def _make_keys_and_values(self) -> None:
        cfg, n = self.cfg, self.cfg.n_key_value_heads or self.cfg.n_heads
        self.repeat_kv_heads = cfg.n_heads // n
        self._W_K, self._W_V = (parameter(cfg, n, cfg.d_model, cfg.d_head) for _ in "KV")
        self._b_K, self._b_V = (parameter(cfg, n, cfg.d_head, zero=True) for _ in "KV")

    W_K, W_V = _of_groups("_W_K"), _of_groups("_W_V")
    b_K, b_V = _of_groups("_b_K"), _of_groups("_b_V")  # noqa: N815

    def _keys_and_values(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        if self.cfg.ungroup_grouped_query_attention:
            return super()._keys_and_values()
        return (self._W_K, self._b_K), (self._W_V, self._b_V)


def _into_heads(
    x: Float[Tensor, "batch pos *each_head d_model"],
    w: Float[Tensor, "head d_model d_head"],
    b: Float[Tensor, "head d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    """Queries, keys or values from one input for all heads, or one for each."""
    if x.ndim == 4:
        return einsum(x, w, "batch pos head d_model, head d_model d_head -> batch pos head d_head") + b
    rows = rearrange(w, "head d_model d_head -> (head d_head) d_model")
    return project(x, rows.T, b.flatten()).unflatten(-1, b.shape)


_Stream = Float[Tensor, "batch pos d_model"]


class TransformerBlock(nn.Module):
    """Attention and an MLP, one after the other or side by side (`parallel_attn_mlp`)."""

    def __init__(self, cfg: HookedTransformerConfig, layer: int):
        super().__init__()
        self.cfg = cfg
        twice = cfg.use_normalization_before_and_after and cfg.normalization_type is not None
        after = (cfg.normalization_type or "").removesuffix("Pre")
        self.ln1 = normalisation(cfg)
        if cfg.use_normalization_before_and_after:
            self.ln1_post = Norm(cfg, after) if twice else nn.Identity()
        if not cfg.attn_only:
            self.ln2 = normalisation(cfg)
            if cfg.use_normalization_before_and_after:
                self.ln2_post = Norm(cfg, after) if twice else nn.Identity()
        attention = Attention if cfg.n_key_value_heads is None else GroupedQueryAttention
        kinds = cfg.attn_types if cfg.use_local_attn else None
        self.attn = attention(cfg, kinds[layer] if kinds else "global", layer)
        if not cfg.attn_only:
            self.mlp = Mlp(cfg)
        self.hook_attn_in, self.hook_q_input, self.hook_k_input, self.hook_v_input = (HookPoint() for _ in range(4))
        self.hook_mlp_in, self.hook_attn_out, self.hook_mlp_out, self.hook_resid_pre = (HookPoint() for _ in range(4))
        if not (cfg.attn_only or cfg.parallel_attn_mlp):
            self.hook_resid_mid = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(
        self,
        resid_pre: _Stream,
        shortformer_pos_embed: _Stream | None = None,
        past_kv_cache_entry: TransformerLensKeyValueCacheEntry | None = None,
        attention_mask: Int[Tensor, "batch all_pos"] | None = None,
    ) -> _Stream:
        """The residual stream after the block.

        Only queries and keys read `shortformer_pos_embed`, positions that are not in the stream. The mask is 1 for
        tokens and 0 for padding.
        """
        resid_pre = self.hook_resid_pre(resid_pre)
        query, key, value = (self.ln1(x) for x in self._read(resid_pre))
        if (places := shortformer_pos_embed) is not None:
            places = places[:, :, None] if query.ndim > places.ndim else places
            query, key = query + places, key + places
        attn_out = self.attn(query, key, value, past_kv_cache_entry=past_kv_cache_entry, attention_mask=attention_mask)
        if self.cfg.use_normalization_before_and_after:
            attn_out = self.ln1_post(attn_out)
        of_mlp = None if self.cfg.attn_only else self._mlp
        return after_attention(resid_pre, attn_out, of_mlp, passing(self), parallel=self.cfg.parallel_attn_mlp)

    def _read(self, stream: _Stream) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs of queries, keys and values: the stream, or a copy of it for each head where these are hooked."""
        cfg = self.cfg
        if cfg.use_split_qkv_input:
            shared = cfg.n_key_value_heads if not cfg.ungroup_grouped_query_attention else None
            key, value = (_for_each(stream, shared or cfg.n_heads) for _ in "KV")
            query = self.hook_q_input(_for_each(stream, cfg.n_heads))
            return query, self.hook_k_input(key), self.hook_v_input(value)
        if cfg.use_attn_in:
            stream = self.hook_attn_in(_for_each(stream, cfg.n_heads))
        return stream, stream, stream

    def _mlp(self, stream: _Stream) -> _Stream:
        """Contribution of the MLP to the residual stream."""
        read = self.hook_mlp_in(stream.clone()) if self.cfg.use_hook_mlp_in else stream
        mlp_out = self.mlp(self.ln2(read))
        return self.ln2_post(mlp_out) if self.cfg.use_normalization_before_and_after else mlp_out


def _for_each(stream: _Stream, n_heads: int) -> Float[Tensor, "batch pos head d_model"]:
    """A copy of the stream for each head."""
    return repeat(stream, "batch pos d_model -> batch pos head d_model", head=n_heads).clone()
