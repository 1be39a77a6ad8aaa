"""Normalisations, MLPs, embeddings and positions, with TransformerLens's hooks and numbers to the last bit."""

import math

import torch
from einops import repeat
from jaxtyping import Float, Int
from torch import Tensor, nn

from mnemoscope.engine import block, pointwise
from mnemoscope.engine.pointwise import project
from mnemoscope.models.hooked.config import HookedTransformerConfig, activation
from mnemoscope.models.hooked.points import HookPoint, passing


def waves(cfg: HookedTransformerConfig, n: int) -> tuple[Float[Tensor, "n rotary_dim"], Float[Tensor, "n rotary_dim"]]:
    """Sines and cosines of the angles by which the first n positions turn each entry."""
    dtype = torch.float64 if cfg.dtype == torch.float64 else torch.float32
    rotary_dim = cfg.rotary_dim or cfg.d_head
    if cfg.use_NTK_by_parts_rope:
        periods = _stretched(cfg, rotary_dim)
    else:
        periods = cfg.rotary_base ** (torch.arange(rotary_dim // 2, dtype=dtype) / (rotary_dim / 2))
    sin, cos = block.waves(periods, n, adjacent=cfg.rotary_adjacent_pairs)
    return sin.to(cfg.dtype), cos.to(cfg.dtype)


def _stretched(cfg: HookedTransformerConfig, rotary_dim: int) -> Float[Tensor, " half"]:
    """Periods of Llama 3.1: slow waves are stretched by a factor, fast ones stay, and those between are mixed."""
    frequencies = 1.0 / (cfg.rotary_base ** (torch.arange(0, rotary_dim, 2).float() / rotary_dim))
    length, factor = cfg.NTK_original_ctx_len, cfg.NTK_by_parts_factor
    low, high = cfg.NTK_by_parts_low_freq_factor, cfg.NTK_by_parts_high_freq_factor
    wavelengths = 2 * math.pi / frequencies
    slow = torch.where(wavelengths > length / low, frequencies / factor, frequencies)
    share = (length / wavelengths - low) / (high - low)
    mixed = (1 - share) * slow / factor + share * slow
    between = (wavelengths >= length / high) & (wavelengths <= length / low)
    return 1 / torch.where(between, mixed, slow)


def distance_penalty(n_heads: int, n: int, device: torch.device) -> Float[Tensor, "head query key"]:
    """ALiBi: scores get minus the distance to keys before the query, times a slope for each head."""
    start = 2 ** (-8 / n_heads)
    slopes = start * start ** torch.arange(n_heads, device=device)
    place = torch.arange(n, device=device)
    return slopes[:, None, None] * (place - place[:, None]).clamp(max=0).float()


def offset_positions(offset: int, mask: Int[Tensor, "batch all_pos"]) -> Int[Tensor, "batch pos"]:
    """The positions of tokens from `offset` on, counted without padding; 0 for padding before the first token."""
    return (mask.cumsum(1) - 1).clamp(min=0)[:, offset:]


def parameter(cfg: HookedTransformerConfig, *shape: int, zero: bool = False) -> nn.Parameter:
    """An uninitialised weight, or a bias of zeros."""
    return nn.Parameter((torch.zeros if zero else torch.empty)(*shape, dtype=cfg.dtype))


class Norm(nn.Module):
    """A normalisation of kind LN, LNPre, RMS or RMSPre."""

    def __init__(self, cfg: HookedTransformerConfig, kind: str | None = None, width: int | None = None):
        super().__init__()
        self.cfg, self.eps, self.kind = cfg, cfg.eps, kind or cfg.normalization_type or "LN"
        if not self.kind.endswith("Pre"):
            self.w = nn.Parameter(torch.ones(width or cfg.d_model, dtype=cfg.dtype))
        if self.kind == "LN":
            self.b = parameter(cfg, width or cfg.d_model, zero=True)
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Normalised rows."""
        weights = {name: getattr(self, name, None) for name in "wb"}
        return pointwise.Norm(kind=self.kind, eps=self.eps, dtype=self.cfg.dtype, **weights)(x, at=passing(self))


def normalisation(cfg: HookedTransformerConfig, *, final: bool = False) -> nn.Module:
    """The normalisation before a part of a block, or the final one before the unembedding."""
    kind = cfg.normalization_type
    if kind is None:
        return nn.Identity()
    return Norm(cfg, kind.replace("LN", "RMS") if final and cfg.final_rms else kind)


class Embed(nn.Module):
    """Tokens to vectors."""

    def __init__(self, cfg: HookedTransformerConfig):
        super().__init__()
        self.W_E = parameter(cfg, cfg.d_vocab, cfg.d_model)
        self.ln = Norm(cfg, "LN") if cfg.post_embedding_ln else None

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """A row of W_E for each token."""
        return self.W_E[tokens, :] if self.ln is None else self.ln(self.W_E[tokens, :])


class PosEmbed(nn.Module):
    """Positions to vectors."""

    def __init__(self, cfg: HookedTransformerConfig):
        super().__init__()
        self.W_pos = parameter(cfg, cfg.n_ctx, cfg.d_model)

    def forward(
        self, tokens: Int[Tensor, "batch pos *width"], offset: int = 0, mask: Int[Tensor, "batch all_pos"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """A row of W_pos for each position, counted without padding (`mask` 0); zeros for padding."""
        n = tokens.shape[1]
        if mask is None:
            return repeat(self.W_pos[offset : offset + n], "pos width -> batch pos width", batch=len(tokens)).clone()
        padding = ~mask.bool()[:, offset : offset + n, None]
        return torch.where(padding, 0, self.W_pos[offset_positions(offset, mask)])


class Unembed(nn.Module):
    """The residual stream to logits."""

    def __init__(self, cfg: HookedTransformerConfig):
        super().__init__()
        self.W_U = parameter(cfg, cfg.d_model, cfg.d_vocab_out)
        self.b_U = parameter(cfg, cfg.d_vocab_out, zero=True)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab_out"]:
        """A logit for each token."""
        return self.hook_out(project(self.hook_in(residual), laid_out(self.W_U), self.b_U))


class Mlp(nn.Module):
    """The MLP of a block, which acts on each position by itself."""

    def __init__(self, cfg: HookedTransformerConfig):
        super().__init__()
        d_mlp, d_model = cfg.d_mlp or 4 * cfg.d_model, cfg.d_model
        self.cfg, self.act_fn = cfg, activation(cfg.act_fn or "")
        self.hook_mid, self.ln = None, None
        if cfg.is_layer_norm_activation():
            self.hook_mid = HookPoint()
            self.ln = Norm(cfg, "LN" if cfg.normalization_type == "LN" else "LNPre", d_mlp)
        self.W_in = parameter(cfg, d_model, d_mlp)
        if cfg.gated_mlp:
            self.W_out, self.W_gate = parameter(cfg, d_mlp, d_model), parameter(cfg, d_model, d_mlp)
            self.b_in = parameter(cfg, d_mlp, zero=True)
        else:
            self.b_in = parameter(cfg, d_mlp, zero=True)
            self.W_out = parameter(cfg, d_mlp, d_model)
        self.b_out = parameter(cfg, d_model, zero=True)
        self.hook_pre = HookPoint()
        if cfg.gated_mlp:
            self.hook_pre_linear = HookPoint()
        self.hook_post = HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Contribution of the MLP to the residual stream."""
        w_in, w_out, w_gate = self.W_in, self.W_out, None
        if self.cfg.gated_mlp:
            w_in, w_out, w_gate = (laid_out(w) for w in (w_in, w_out, self.W_gate))
        weights = pointwise.Mlp(
            w_in=w_in, b_in=self.b_in, w_out=w_out, b_out=self.b_out, w_gate=w_gate, activation=self._active
        )
        return weights(x, at=passing(self, "mlp."))

    def _active(self, pre: Float[Tensor, "batch pos d_mlp"]) -> Float[Tensor, "batch pos d_mlp"]:
        """Apply the activation function, and normalise after SoLU."""
        active = self.act_fn(pre)
        return active if self.ln is None or self.hook_mid is None else self.ln(self.hook_mid(active))


def laid_out(w: Float[Tensor, "d_in d_out"]) -> Float[Tensor, "d_in d_out"]:
    """The same weight laid out by columns, as TransformerLens multiplies by it: the layout decides the last bits."""
    return w.T.contiguous().T
