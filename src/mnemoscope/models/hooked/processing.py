"""Loads weights and rewrites them: logits stay the same, and normalisations only centre and divide."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.models.hooked.layers import normalisation


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
