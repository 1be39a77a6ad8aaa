"""Positions that act on attention: rotary positions turn queries and keys, ALiBi lowers scores by the distance."""

import math

import torch
from einops import repeat
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.models.hooked.config import HookedTransformerConfig


def waves(cfg: HookedTransformerConfig, n: int) -> tuple[Float[Tensor, "n rotary_dim"], Float[Tensor, "n rotary_dim"]]:
    """Sines and cosines of the angles by which the first n positions turn each entry."""
    dtype = torch.float64 if cfg.dtype == torch.float64 else torch.float32
    rotary_dim = cfg.rotary_dim or cfg.d_head
    if cfg.use_NTK_by_parts_rope:
        periods = _stretched(cfg, rotary_dim)
    else:
        periods = cfg.rotary_base ** (torch.arange(rotary_dim // 2, dtype=dtype) / (rotary_dim / 2))
    periods = repeat(periods, "half -> (half 2)" if cfg.rotary_adjacent_pairs else "half -> (2 half)")
    angles = torch.arange(n, dtype=dtype)[:, None] / periods
    return angles.sin().to(cfg.dtype), angles.cos().to(cfg.dtype)


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
