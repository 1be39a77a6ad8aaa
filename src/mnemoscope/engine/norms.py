"""Normalisations: LayerNorm and RMSNorm over the residual stream, softmax over scores.

LN(x) = (x - mean) / sqrt(variance + eps) · w + b        RMS(x) = x / sqrt(mean of x² + eps) · w
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.engine.changes import NONE, Changes

_SHORT = 16
"""On a CPU PyTorch's softmax takes many times as long on rows shorter than this."""


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalisation with gain `w` and bias `b`, where it has them.

    Attributes:
        kind: `LN` and `RMS` with weights, `LNPre` and `RMSPre` without, None for none.
        eps: Added to the variance, or to the mean of squares.
        dtype: Precision of normalised rows where hooks see the steps; None: that of the input.
    """

    kind: str | None
    eps: float
    w: Float[Tensor, " d_model"] | None = None
    b: Float[Tensor, " d_model"] | None = None
    dtype: torch.dtype | None = None

    def __call__(self, x: Float[Tensor, "*rows d_model"], at: Changes = NONE) -> Float[Tensor, "*rows d_model"]:
        """Normalise rows; step by step where changes act within the normalisation."""
        if self.kind is None:
            return x
        if at.any("hook_scale", "hook_normalized"):
            dtype = self.dtype or x.dtype
            exact = self._centred(x if dtype in (torch.float32, torch.float64) else x.float())
            x = at("hook_normalized", exact / at("hook_scale", self._size(exact))).to(dtype)
            x = x if self.w is None else x * self.w
            return x if self.b is None else x + self.b
        if self.kind.startswith("LN"):
            return F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)
        return F.rms_norm(x, x.shape[-1:], self.w, self.eps)

    def scale(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows 1"]:
        """Divisors of the rows, sqrt(variance + eps) or sqrt(mean of x² + eps)."""
        return self._size(self._centred(x))

    def pulled_back(
        self, x: Float[Tensor, "prompt pos d_model"], gradient: Float[Tensor, "reader prompt pos d_model"]
    ) -> Float[Tensor, "reader prompt pos d_model"]:
        """Gradients at the rows `x`, from those of several readers at the normalised rows.

        With y = x̂ · w + b and x̂ of unit variance, dx = (dy w - mean(dy w) - x̂ mean(dy w · x̂)) / sqrt(variance + eps);
        RMS has no mean to subtract.
        """
        if self.kind is None:
            return gradient
        x = self._centred(x)
        scale = self._size(x)
        unit = x / scale
        gradient = gradient if self.w is None else gradient * self.w
        along = (gradient * unit).mean(-1, keepdim=True)
        return torch.addcmul(self._centred(gradient), along, unit, value=-1) / scale

    def _centred(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        return x - x.mean(-1, keepdim=True) if str(self.kind).startswith("LN") else x

    def _size(self, centred: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows 1"]:
        return (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()


def softmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Softmax over the last axis, as `Tensor.softmax`; NaN where every score is minus infinity."""
    if not _is_short(scores):
        return scores.softmax(-1)
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def log_softmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Log-softmax over the last axis, as `Tensor.log_softmax`; NaN where every score is minus infinity."""
    if not _is_short(scores):
        return scores.log_softmax(-1)
    below = scores - scores.amax(-1, keepdim=True)
    return below - below.exp().sum(-1, keepdim=True).log()


def _is_short(rows: Tensor) -> bool:
    exact = rows.dtype in (torch.float32, torch.float64)
    return exact and rows.shape[-1] < _SHORT and rows.device.type == "cpu"
