"""Embeddings, normalisations and MLPs, with TransformerLens's hooks, and its numbers to the last bit.

normalisation: (x - mean) / sqrt(variance + eps) · w + b;  of kind RMS without mean and b, `...Pre` without w and b
MLP: act(x W_in + b_in) W_out + b_out;  gated: (act(x W_gate) · (x W_in) + b_in) W_out + b_out
"""

import torch
from einops import repeat
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from mnemoscope.models.hooked.config import HookedTransformerConfig, activation
from mnemoscope.models.hooked.points import HookPoint
from mnemoscope.models.hooked.positions import offset_positions


def parameter(cfg: HookedTransformerConfig, *shape: int, zero: bool = False) -> nn.Parameter:
    """A weight that is not yet drawn, or a bias."""
    return nn.Parameter((torch.zeros if zero else torch.empty)(*shape, dtype=cfg.dtype))


class Norm(nn.Module):
    """A normalisation of kind LN, LNPre, RMS or RMSPre."""

    def __init__(self, cfg: HookedTransformerConfig, kind: str | None = None, width: int | None = None):
        super().__init__()
        kind = kind or cfg.normalization_type or "LN"
        self.cfg, self.eps, self.centred = cfg, cfg.eps, kind.startswith("LN")
        if not kind.endswith("Pre"):
            self.w = nn.Parameter(torch.ones(width or cfg.d_model, dtype=cfg.dtype))
            if self.centred:
                self.b = parameter(cfg, width or cfg.d_model, zero=True)
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Normalised rows."""
        if self.cfg.dtype not in (torch.float32, torch.float64):
            x = x.float()
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = self.hook_normalized(x / scale).to(self.cfg.dtype)
        if not hasattr(self, "w"):
            return x
        return x * self.w + self.b if self.centred else x * self.w


def normalisation(cfg: HookedTransformerConfig, *, final: bool = False) -> nn.Module:
    """The one before a part of a block, or before the unembedding."""
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
        """A row of W_E for each."""
        return self.W_E[tokens, :] if self.ln is None else self.ln(self.W_E[tokens, :])


class PosEmbed(nn.Module):
    """Positions to vectors."""

    def __init__(self, cfg: HookedTransformerConfig):
        super().__init__()
        self.W_pos = parameter(cfg, cfg.n_ctx, cfg.d_model)

    def forward(
        self, tokens: Int[Tensor, "batch pos *width"], offset: int = 0, mask: Int[Tensor, "batch all_pos"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """A row of W_pos for each, counted without what `mask` calls padding; zeros for padding."""
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
        return self.hook_out(F.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U))


class Mlp(nn.Module):
    """What each position does for itself."""

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
        """What the MLP adds to the residual stream."""
        gated = self.cfg.gated_mlp
        pre = self.hook_pre(F.linear(x, self.W_gate.T.contiguous()) if gated else projected(x, self.W_in, self.b_in))
        active = self.act_fn(pre)
        if self.ln is not None and self.hook_mid is not None:
            post = self.hook_post(self.ln(self.hook_mid(active)))
        elif gated:
            linear = self.hook_pre_linear(F.linear(x, self.W_in.T.contiguous()))
            post = self.hook_post(active * linear + self.b_in)
        else:
            post = self.hook_post(active)
        if gated:
            return F.linear(post, self.W_out.T.contiguous(), self.b_out)
        return projected(post, self.W_out, self.b_out)


def projected(
    x: Float[Tensor, "batch pos d_in"], w: Float[Tensor, "d_in d_out"], b: Float[Tensor, " d_out"]
) -> Float[Tensor, "batch pos d_out"]:
    """Rows times a weight plus a bias; as one `addmm`, whose last bits TransformerLens has."""
    return torch.addmm(b, x.reshape(-1, x.shape[-1]), w).unflatten(0, x.shape[:-1])


def soft_capped(x: Float[Tensor, "*rows"], cap: float) -> Float[Tensor, "*rows"]:
    """Values bent to stay within a cap, cap · tanh(x / cap); as they are where the cap is not above zero."""
    return cap * torch.tanh(x / cap) if cap > 0 else x
