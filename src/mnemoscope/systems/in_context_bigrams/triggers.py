"""Tokens that a sequence gives a successor of its own: drawn, prescribed to a chain, and found again in its tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch


def by_frequency(unigram: Float[Tensor, " token"], first_rank: int, n_triggers: int) -> tuple[int, ...]:
    """The `n_triggers` most frequent tokens from rank `first_rank` on; of equals the lower token comes first."""
    order = unigram.argsort(descending=True, stable=True).tolist()
    return tuple(order[first_rank : first_rank + n_triggers])


def prescribed(
    triggers: Int[Tensor, "batch trigger"], outputs: Int[Tensor, "batch trigger"], n_tokens: int
) -> Int[Tensor, "batch token"]:
    """The successor of every token that is a trigger; -1: it is none."""
    return triggers.new_full((len(triggers), n_tokens), -1).scatter(1, triggers, outputs)


def latents(batch: Batch) -> dict[str, Tensor]:
    """Where triggers stand, of a batch that knows its `triggers`.

    `trigger`: the place of the current token among the triggers, -1: it is none. `occurrence`: how often the trigger
    has occurred, this time included; 0: no trigger. `attended`: the position after the last earlier occurrence of the
    trigger; -1: there is none.
    """
    is_trigger = batch.inputs[:, :, None] == batch.known["triggers"][:, None]
    count = is_trigger.cumsum(1)
    place = torch.arange(1, batch.inputs.shape[1] + 1, device=batch.inputs.device)[:, None]
    last = torch.where(is_trigger, place, 0).cummax(1).values
    before = torch.cat((torch.zeros_like(last[:, :1]), last[:, :-1]), 1)
    attended = (before * is_trigger).sum(-1)
    return {
        "trigger": torch.where(is_trigger.any(-1), is_trigger.int().argmax(-1), -1),
        "occurrence": (count * is_trigger).sum(-1),
        "attended": torch.where(attended > 0, attended, -1),
    }


def first_outputs(
    inputs: Int[Tensor, "batch pos"], triggers: Int[Tensor, "batch trigger"], noise_token: int = -1
) -> Int[Tensor, "batch trigger"]:
    """What other than noise first follows every trigger; -1: nothing does."""
    follows = (inputs[:, None, :-1] == triggers[..., None]) & (inputs[:, None, 1:] != noise_token)
    after = inputs[:, None, 1:].expand_as(follows)
    first = follows & (follows.cumsum(-1) == 1)
    return torch.where(first, after, -1).amax(-1) if inputs.shape[1] > 1 else torch.full_like(triggers, -1)
