"""The parts of a transformer's forward pass as plain functions of weights, for passes that run without hooks.

    normalisation: LN(x) = (x - mean) / sqrt(variance + eps) · w + b, RMS(x) = x / sqrt(mean of x² + eps) · w
    projection: x W + b
    attention: softmax of the scores over the keys that do not come after the query, times the values
    MLP: act(norm(x) W_in + b_in) W_out + b_out, gated: (act(norm(x) W_gate) · norm(x) W_in + b_in) W_out + b_out
    rotary positions: pairs of entries of queries and keys turned by an angle that grows with the position

Scores are q·k over the scale of attention; whoever forms them divides.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "identity": lambda x: x,
}


_SHORT = 16
"""On a CPU PyTorch's softmax takes many times as long on rows shorter than this."""


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalisation: `LN` and `RMS` with weights, `LNPre` and `RMSPre` without, None for none."""

    kind: str | None
    eps: float
    w: Float[Tensor, " d_model"] | None = None
    b: Float[Tensor, " d_model"] | None = None

    def __call__(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Normalised rows."""
        if self.kind is None:
            return x
        if self.kind.startswith("LN"):
            return F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)
        return F.rms_norm(x, x.shape[-1:], self.w, self.eps)


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """The MLP of a block, with the normalisation before it."""

    ln2: Norm
    w_in: Float[Tensor, "d_model d_mlp"]
    b_in: Float[Tensor, " d_mlp"]
    w_out: Float[Tensor, "d_mlp d_model"]
    b_out: Float[Tensor, " d_model"]
    activation: Callable[[Tensor], Tensor]
    w_gate: Float[Tensor, "d_model d_mlp"] | None = None

    def __call__(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """What is added to the residual stream."""
        normed = self.ln2(x)
        if self.w_gate is None:
            post = self.activation(projected(normed, self.w_in, self.b_in))
        else:
            post = torch.addcmul(self.b_in, self.activation(normed @ self.w_gate), normed @ self.w_in)
        return projected(post, self.w_out, self.b_out)


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions (Su et al. 2021), on the first entries of queries and keys.

    Attributes:
        cos: Of the angle of every position, for each entry that is turned.
        sin: The same.
        adjacent: Whether neighbours make a pair, as in GPT-J; otherwise the halves do, as in GPT-NeoX and Llama.
    """

    cos: Float[Tensor, "n_ctx rotary_dim"]
    sin: Float[Tensor, "n_ctx rotary_dim"]
    adjacent: bool

    def __call__(
        self, x: Float[Tensor, "*rows pos d_head"], positions: Int[Tensor, " pos"] | slice
    ) -> Float[Tensor, "*rows pos d_head"]:
        """Queries or keys that stand at these positions."""
        cos, sin = self.cos[positions], self.sin[positions]
        turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
        if self.adjacent:
            across = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
        else:
            first, second = turned.chunk(2, -1)
            across = torch.cat((-second, first), -1)
        return torch.cat((turned * cos + across * sin, rest), -1)


def projected(
    x: Float[Tensor, "*rows d_in"], w: Float[Tensor, "d_in d_out"], b: Float[Tensor, " d_out"]
) -> Float[Tensor, "*rows d_out"]:
    """Rows times a weight plus a bias."""
    return F.linear(x, w.T, b)


def attended(
    scores: Float[Tensor, "*heads query key"],
    values: Float[Tensor, "*values key d_head"],
    queries: Int[Tensor, " query"],
) -> Float[Tensor, "... query d_head"]:
    """What heads take from the values; the queries are at these positions, the keys at all. Scores are overwritten."""
    later = torch.arange(scores.shape[-1], device=scores.device) > queries[:, None]
    return softmax(scores.masked_fill_(later, -math.inf)) @ values


def softmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Over the last axis, as `Tensor.softmax`; NaN where every score is minus infinity."""
    if not _is_short(scores):
        return scores.softmax(-1)
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def log_softmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Over the last axis, as `Tensor.log_softmax`; NaN where every score is minus infinity."""
    if not _is_short(scores):
        return scores.log_softmax(-1)
    below = scores - scores.amax(-1, keepdim=True)
    return below - below.exp().sum(-1, keepdim=True).log()


def _is_short(rows: Tensor) -> bool:
    exact = rows.dtype in (torch.float32, torch.float64)
    return exact and rows.shape[-1] < _SHORT and rows.device.type == "cpu"
