"""Weights of all layers together, and what is read from them, under TransformerLens's names."""

# ruff: noqa: N802 (weights are called as everywhere in the field)

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from mnemoscope.models.lens import FactoredMatrix

_Heads = Float[Tensor, "layer head rows columns"]
_HeadBiases = Float[Tensor, "layer head width"]


class Weights(nn.Module):
    """A model with `embed`, `pos_embed`, `blocks` and `unembed`."""

    cfg: Any
    embed: Any
    pos_embed: Any
    unembed: Any
    blocks: Any
    to_single_token: Any

    def _stacked(self, part: str, name: str) -> Tensor:
        return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Tokens to residual stream."""
        return self.embed.W_E

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Positions to residual stream."""
        return self.pos_embed.W_pos

    @property
    def W_E_pos(self) -> Float[Tensor, "tokens_and_positions d_model"]:
        """Tokens, then positions."""
        return torch.cat([self.W_E, self.W_pos])

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Residual stream to logits."""
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, " d_vocab_out"]:
        """Of logits."""
        return self.unembed.b_U

    @property
    def W_Q(self) -> _Heads:
        """Residual stream to queries."""
        return self._stacked("attn", "W_Q")

    @property
    def W_K(self) -> _Heads:
        """Residual stream to keys."""
        return self._stacked("attn", "W_K")

    @property
    def W_V(self) -> _Heads:
        """Residual stream to values."""
        return self._stacked("attn", "W_V")

    @property
    def W_O(self) -> _Heads:
        """Heads to residual stream."""
        return self._stacked("attn", "W_O")

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        """Residual stream to neurons."""
        return self._stacked("mlp", "W_in")

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"] | None:
        """Residual stream to gates; None without."""
        return self._stacked("mlp", "W_gate") if self.cfg.gated_mlp else None

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        """Neurons to residual stream."""
        return self._stacked("mlp", "W_out")

    @property
    def b_Q(self) -> _HeadBiases:
        """Of queries."""
        return self._stacked("attn", "b_Q")

    @property
    def b_K(self) -> _HeadBiases:
        """Of keys."""
        return self._stacked("attn", "b_K")

    @property
    def b_V(self) -> _HeadBiases:
        """Of values."""
        return self._stacked("attn", "b_V")

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """Of attention."""
        return self._stacked("attn", "b_O")

    @property
    def b_in(self) -> Float[Tensor, "layer d_mlp"]:
        """Of neurons."""
        return self._stacked("mlp", "b_in")

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """Of MLPs."""
        return self._stacked("mlp", "b_out")

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T of every head."""
        return FactoredMatrix(self.W_Q, self.W_K.mT)

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head."""
        return FactoredMatrix(self.W_V, self.W_O)

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """The sum of what biases have added to the residual stream before a layer, or before its MLP."""
        total = torch.zeros(self.cfg.d_model, device=self.W_E.device)
        for block in self.blocks[:layer]:
            total = total + block.attn.b_O + (block.mlp.b_out if include_mlp_biases else 0)
        return total + self.blocks[layer].attn.b_O if mlp_input else total

    def all_composition_scores(self, mode: str) -> Float[Tensor, "layer head layer head"]:
        """How much of what a head reads (`mode`: Q, K or V) lies in what earlier heads write; 0 for others."""
        from transformer_lens.utilities.matrix import composition_scores

        right = {"Q": lambda: self.QK, "K": lambda: self.QK.T, "V": lambda: self.OV}[mode]()
        scores = composition_scores(self.OV, right, broadcast_dims=True)
        layer = torch.arange(self.cfg.n_layers, device=scores.device)
        earlier = layer[:, None, None, None] < layer[None, None, :, None]
        return torch.where(earlier, scores, torch.zeros_like(scores))

    def tokens_to_residual_directions(self, tokens: Any) -> Float[Tensor, "*tokens d_model"]:
        """What the unembedding reads for tokens, given as numbers or as one text."""
        if isinstance(tokens, Tensor) and tokens.numel() > 1:
            return rearrange(self.W_U[:, tokens], "d_model ... -> ... d_model")
        return self.W_U[:, self.to_single_token(tokens) if isinstance(tokens, str) else int(tokens)]
