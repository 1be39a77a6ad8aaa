"""The two-layer induction circuit for a few tokens that are known beforehand."""

from collections.abc import Sequence

import torch
from transformer_lens import HookedTransformer

from mnemoscope.core import in_range
from mnemoscope.models.constructed import SURE, Circuit, induction, induction_circuit


def trigger_induction_circuit(n_tokens: int, n_ctx: int) -> Circuit:
    """Names of what `trigger_induction` consists of."""
    return induction_circuit(n_tokens, n_ctx)


@torch.no_grad()
def trigger_induction(n_tokens: int, n_ctx: int, *, triggers: Sequence[int], margin: float = 20.0) -> HookedTransformer:
    """As `induction`, but the second layer matches triggers only, and looks after triggers from everywhere.

    L1H0 attends from a trigger that occurred before to the tokens after its earlier occurrences; from every other
    token to the tokens that follow any trigger, all alike, and evenly to the positions 1 to t where there are none. So
    it predicts what followed a trigger, and cannot continue another token that is repeated.

    Args:
        n_tokens: Vocabulary.
        n_ctx: Longest input.
        triggers: The tokens that it knows.
        margin: As in `induction`.

    Raises:
        InputError: There is no such token.
    """
    for trigger in triggers:
        in_range("a trigger", trigger, 0, n_tokens - 1)
    model, circuit = induction(n_tokens, n_ctx, margin=margin), induction_circuit(n_tokens, n_ctx)
    attention, previous = model.blocks[1].attn, circuit.dims["previous"]
    others = [token for token in range(n_tokens) if token not in triggers]
    attention.W_K[0, :, others] = 0
    attention.W_K[0, [previous.start + trigger for trigger in triggers], -1] += SURE / 2
    return model
