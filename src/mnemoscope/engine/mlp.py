"""The MLP of a block.

act(x W_in + b_in) W_out + b_out        gated: (act(x W_gate) · (x W_in) + b_in) W_out + b_out
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.engine.changes import NONE, Changes

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

    def __call__(self, normed: Float[Tensor, "*rows d_model"], at: Changes = NONE) -> Float[Tensor, "*rows d_model"]:
        """Contribution of the MLP to the residual stream, from the normalised stream."""
        if self.w_gate is None:
            post = self.activation(at("mlp.hook_pre", projected(normed, self.w_in, self.b_in)))
        else:
            gate = self.activation(at("mlp.hook_pre", normed @ self.w_gate))
            linear = at("mlp.hook_pre_linear", normed @ self.w_in)
            post = torch.addcmul(self.b_in, gate, linear) if at is NONE else gate * linear + self.b_in
        return projected(at("mlp.hook_post", post), self.w_out, self.b_out)


def projected(
    x: Float[Tensor, "*rows d_in"], w: Float[Tensor, "d_in d_out"], b: Float[Tensor, " d_out"]
) -> Float[Tensor, "*rows d_out"]:
    """Rows times a weight plus a bias."""
    return F.linear(x, w.T, b)


def soft_capped(x: Float[Tensor, "*rows"], cap: float | None) -> Float[Tensor, "*rows"]:
    """Bend values to stay within a cap: cap · tanh(x / cap). A cap of None, or not above zero, leaves them."""
    return cap * torch.tanh(x / cap) if cap is not None and cap > 0 else x
