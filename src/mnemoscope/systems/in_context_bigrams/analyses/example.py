"""The attention of every head on single sequences, with triggers and their outputs marked, to look at.

*Does not show* anything but these sequences: scores over many of them are in `heads`.
"""

from collections.abc import Sequence

import torch
import xarray as xr

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import patterns_of_sequences
from mnemoscope.core import one_of

TRIGGER, OUTPUT, BOTH, OTHER = "trigger", "output", "output and trigger", "other"


def marked_patterns(model: HookedModel, batch: Batch, symbols: Sequence[str]) -> xr.Dataset:
    """Attention, tokens, and what each token is.

    Args:
        model: Any hooked model.
        batch: Sequences of in-context bigrams or noisy recall.
        symbols: What every token is called.

    Returns:
        As `patterns_of_sequences`, with `role` over (example, key): `trigger`; `output`, the token after one; both;
        or `other`.

    Raises:
        InputError: The batch is another task's, or the model is too small for it.
    """
    one_of("the latent that says where triggers stand", "trigger", batch.latents)
    trigger = batch.latents["trigger"] >= 0
    output = torch.cat((torch.zeros_like(trigger[:, :1]), trigger[:, :-1]), 1)
    names = [OTHER, TRIGGER, OUTPUT, BOTH]
    roles = [[names[place] for place in row] for row in (trigger + 2 * output.int()).tolist()]
    return patterns_of_sequences(model, batch, symbols).assign(role=(("example", "key"), roles))
