"""Weights of all layers together, results computed from them, and weights rewritten while they are loaded.

Names are TransformerLens's.
"""

from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.models.hooked.layers import normalisation
from mnemoscope.models.lens import FactoredMatrix

# ruff: noqa: N802, N815 (weights are called as everywhere in the field)


_Heads = Float[Tensor, "layer head rows columns"]
_HeadBiases = Float[Tensor, "layer head width"]


def _own(part: str, name: str, doc: str) -> Any:
    """A property: a weight of one part of the model."""
    return property(lambda model: getattr(getattr(model, part), name), doc=doc)


def _stacked(part: str, name: str, doc: str) -> Any:
    """A property: a weight of one part of every layer, stacked."""
    return property(lambda model: torch.stack([getattr(getattr(b, part), name) for b in model.blocks]), doc=doc)


class Weights(nn.Module):
    """A model with `embed`, `pos_embed`, `blocks` and `unembed`."""

    cfg: Any
    embed: Any
    pos_embed: Any
    unembed: Any
    blocks: Any
    to_single_token: Any

    W_E: Float[Tensor, "d_vocab d_model"] = _own("embed", "W_E", "Tokens to residual stream.")
    W_pos: Float[Tensor, "n_ctx d_model"] = _own("pos_embed", "W_pos", "Positions to residual stream.")
    W_U: Float[Tensor, "d_model d_vocab_out"] = _own("unembed", "W_U", "Residual stream to logits.")
    b_U: Float[Tensor, " d_vocab_out"] = _own("unembed", "b_U", "Of logits.")
    W_Q: _Heads = _stacked("attn", "W_Q", "Residual stream to queries.")
    W_K: _Heads = _stacked("attn", "W_K", "Residual stream to keys.")
    W_V: _Heads = _stacked("attn", "W_V", "Residual stream to values.")
    W_O: _Heads = _stacked("attn", "W_O", "Heads to residual stream.")
    b_Q: _HeadBiases = _stacked("attn", "b_Q", "Of queries.")
    b_K: _HeadBiases = _stacked("attn", "b_K", "Of keys.")
    b_V: _HeadBiases = _stacked("attn", "b_V", "Of values.")
    b_O: Float[Tensor, "layer d_model"] = _stacked("attn", "b_O", "Of attention.")
    W_in: Float[Tensor, "layer d_model d_mlp"] = _stacked("mlp", "W_in", "Residual stream to neurons.")
    b_in: Float[Tensor, "layer d_mlp"] = _stacked("mlp", "b_in", "Of neurons.")
    W_out: Float[Tensor, "layer d_mlp d_model"] = _stacked("mlp", "W_out", "Neurons to residual stream.")
    b_out: Float[Tensor, "layer d_model"] = _stacked("mlp", "b_out", "Of MLPs.")

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"] | None:
        """Residual stream to gates; None unless MLPs are gated."""
        return torch.stack([block.mlp.W_gate for block in self.blocks]) if self.cfg.gated_mlp else None

    @property
    def W_E_pos(self) -> Float[Tensor, "tokens_and_positions d_model"]:
        """Tokens, then positions."""
        return torch.cat([self.W_E, self.W_pos])

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
        """The sum of the biases added to the residual stream before a layer, or before its MLP."""
        total = torch.zeros(self.cfg.d_model, device=self.W_E.device)
        for block in self.blocks[:layer]:
            total = total + block.attn.b_O + (block.mlp.b_out if include_mlp_biases else 0)
        return total + self.blocks[layer].attn.b_O if mlp_input else total

    def all_composition_scores(self, mode: str) -> Float[Tensor, "layer head layer head"]:
        """Composition score ‖A B‖ / (‖A‖ ‖B‖) of each head (A = OV) with each head of later layers; 0 for other pairs.

        B is QK for `mode` Q, its transpose for K, and OV for V.
        """
        from transformer_lens.utilities.matrix import composition_scores

        right = {"Q": lambda: self.QK, "K": lambda: self.QK.T, "V": lambda: self.OV}[mode]()
        scores = composition_scores(self.OV, right, broadcast_dims=True)
        layer = torch.arange(self.cfg.n_layers, device=scores.device)
        earlier = layer[:, None, None, None] < layer[None, None, :, None]
        return torch.where(earlier, scores, torch.zeros_like(scores))

    def tokens_to_residual_directions(self, tokens: Any) -> Float[Tensor, "*tokens d_model"]:
        """Columns of the unembedding for tokens, given as numbers or as one text."""
        if isinstance(tokens, Tensor) and tokens.numel() > 1:
            return rearrange(self.W_U[:, tokens], "d_model ... -> ... d_model")
        return self.W_U[:, self.to_single_token(tokens) if isinstance(tokens, str) else int(tokens)]


class Processing(nn.Module):
    """A model with `blocks` and `ln_final`. TransformerLens does the arithmetic, in 3.9 as in 4."""

    cfg: Any
    blocks: Any
    setup: Any

    def load_and_process_state_dict(
        self,
        state_dict: Mapping[str, Tensor],
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        fold_value_biases: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """Load weights, rewritten as the flags say; biases and buffers that are not given stay.

        Args:
            state_dict: Weights by name; InputError if one is missing.
            fold_ln: Fold gains and biases of normalisations into the weights that read their output.
            center_writing_weights: Subtract the mean over the residual stream from the weights that write to it.
            center_unembed: Subtract the mean over tokens from W_U.
            fold_value_biases: Fold value biases into the output bias of their layer.
            refactor_factored_attn_matrices: Balance W_Q with W_K, and W_V with W_O.
        """
        own = self.state_dict()
        missing = sorted(name for name in own.keys() - state_dict.keys() if ".W_" in name or "._W_" in name)
        if missing:
            raise InputError(f"state_dict must hold every weight; {', '.join(missing)} are missing")
        kind = self.cfg.normalization_type
        folds = fold_ln and kind is not None and any(name.endswith((".ln1.w", "ln_final.w")) for name in state_dict)
        if folds and kind in ("LN", "RMS"):
            self.cfg.normalization_type = f"{kind}Pre"
            self.ln_final = normalisation(self.cfg, final=True)
            for block in self.blocks:
                for name in ("ln1", "ln2") if hasattr(block, "ln2") else ("ln1",):
                    block.add_module(name, normalisation(self.cfg))
                if self.cfg.is_layer_norm_activation():
                    block.mlp.ln = normalisation(self.cfg)
        from transformer_lens.weight_processing import ProcessWeights  # here: commands do without TransformerLens

        processed = ProcessWeights.process_weights(
            {**own, **state_dict},
            self.cfg,
            fold_ln=folds,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            fold_value_biases=fold_value_biases,
            refactor_factored_attn_matrices=refactor_factored_attn_matrices,
        )
        self.load_state_dict(processed, strict=False)
        if folds:
            self.setup()

    def process_weights_(
        self,
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """Rewrite the model's own weights."""
        self.load_and_process_state_dict(
            {name: value.clone() for name, value in self.state_dict().items()},
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            refactor_factored_attn_matrices=refactor_factored_attn_matrices,
        )
