"""A block with TransformerLens's hooks: attention and an MLP read the residual stream and add to it."""

from einops import repeat
from jaxtyping import Float, Int
from torch import Tensor, nn

from mnemoscope.engine.block import after_attention
from mnemoscope.models.hooked.attention import Attention, GroupedQueryAttention
from mnemoscope.models.hooked.config import HookedTransformerConfig
from mnemoscope.models.hooked.layers import Mlp, Norm, normalisation
from mnemoscope.models.hooked.points import HookPoint, passing
from mnemoscope.models.lens import TransformerLensKeyValueCacheEntry

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
