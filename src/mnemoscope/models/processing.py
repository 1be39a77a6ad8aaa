"""A processed copy of a model: the same function with LayerNorm folded into the weights."""

import copy

from transformer_lens import HookedTransformer

from mnemoscope.core.errors import InputError


def folded(model: HookedTransformer) -> HookedTransformer:
    """A copy whose normalisations only centre and divide; the original stays as it is.

    Gains and biases of the normalisations are folded into the weights that read, the weights that write are centred,
    and value biases are moved into the output bias of their layer (TransformerLens's `process_weights_`, which works
    in float32). Logits stay the same, because the unembedding is not centred over the vocabulary. Zero ablation of a
    head does not: its value bias is no longer removed with it.

    Raises:
        InputError: The model has no normalisation with a gain to fold.
    """
    if model.cfg.normalization_type not in ("LN", "RMS"):
        raise InputError(
            f"model must have a normalisation with weights (LN or RMS) to be folded; got "
            f"{model.cfg.normalization_type!r}; use the model as it is"
        )
    result = copy.deepcopy(model)
    result.reset_hooks(including_permanent=True)
    result.process_weights_(center_unembed=False)
    return result
