"""Parts that act on each row by itself: normalisations of the residual stream, the softmax over scores, and MLPs.

LN(x) = (x - mean) / sqrt(variance + eps) · w + b        RMS(x) = x / sqrt(mean of x² + eps) · w
MLP(x) = act(x W_in + b_in) W_out + b_out                gated: (act(x W_gate) · (x W_in) + b_in) W_out + b_out
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.engine.changes import NO_CHANGES, Changes

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

    def __call__(self, x: Float[Tensor, "*rows d_model"], at: Changes = NO_CHANGES) -> Float[Tensor, "*rows d_model"]:
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

    def without_weights(self) -> "Norm":
        """The same without gain and bias."""
        return Norm(kind=self.kind, eps=self.eps)

    def scale(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows 1"]:
        """Divisors of the rows, sqrt(variance + eps) or sqrt(mean of x² + eps)."""
        return self._size(self._centred(x))

    def pull_back(
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


def safe_softmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Softmax over the last axis; 0, with gradients of 0, where every score is minus infinity."""
    empty = scores.amax(-1, keepdim=True) == -math.inf
    return softmax(scores.masked_fill(empty, 0)).masked_fill(empty, 0)


def log_softmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Log-softmax over the last axis, as `Tensor.log_softmax`; NaN where every score is minus infinity."""
    if not _is_short(scores):
        return scores.log_softmax(-1)
    below = scores - scores.amax(-1, keepdim=True)
    return below - below.exp().sum(-1, keepdim=True).log()


def _is_short(rows: Tensor) -> bool:
    exact = rows.dtype in (torch.float32, torch.float64)
    return exact and rows.shape[-1] < _SHORT and rows.device.type == "cpu"


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "identity": lambda x: x,
}


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """Weights of an MLP under TransformerLens's names; `w_gate` is None unless it is gated."""

    w_in: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, " d_mlp"]
    w_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]
    activation: Callable[[Tensor], Tensor]
    w_gate: Float[Tensor, "d_model d_mlp"] | None = None

    def __call__(
        self, normed: Float[Tensor, "*rows d_model"], at: Changes = NO_CHANGES
    ) -> Float[Tensor, "*rows d_model"]:
        """Contribution of the MLP to the residual stream, from the normalised stream."""
        if self.w_gate is None:
            post = self.activation(at("mlp.hook_pre", project(normed, self.w_in, self.b_in)))
        else:
            gate = self.activation(at("mlp.hook_pre", normed @ self.w_gate))
            linear = at("mlp.hook_pre_linear", normed @ self.w_in)
            post = torch.addcmul(self.b_in, gate, linear) if at is NO_CHANGES else gate * linear + self.b_in
        return project(at("mlp.hook_post", post), self.w_out, self.b_out)


def project(
    x: Float[Tensor, "*rows d_in"], w: Float[Tensor, "d_in d_out"], b: Float[Tensor, " d_out"]
) -> Float[Tensor, "*rows d_out"]:
    """Rows times a weight plus a bias."""
    return F.linear(x, w.T, b)


def apply_soft_cap(x: Float[Tensor, "*rows"], cap: float | None) -> Float[Tensor, "*rows"]:
    """Bend values to stay within a cap: cap · tanh(x / cap). A cap of None, or not above zero, leaves them."""
    return cap * torch.tanh(x / cap) if cap is not None and cap > 0 else x
