"""Minimal pairs of sequences with triggers: one trigger gets another output, and nothing is drawn anew.

From left to right, whatever follows the chosen trigger becomes the new output (a noise token stays). Every other token
is kept. The trigger's later occurrences then have another answer, which can be read from the context as before.

The trigger keeps one output throughout. It is no trigger, and is chosen so that as few transitions as possible, mostly
none, are ones that the chain never makes. Two things of the process are lost: tokens after an output were drawn to
follow the old one, and an old output that was a trigger itself now occurs less often.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import Batch, InputError

_NEW = -2
"""Stands for the new output until it is chosen."""


def exchange(
    batch: Batch,
    *,
    allowed: Bool[Tensor, "batch trigger token"],
    chain: Float[Tensor, "state token"],
    generator: torch.Generator,
    noise_token: int = -1,
) -> tuple[Int[Tensor, "batch place"], Int[Tensor, "batch trigger"]]:
    """Sequences, targets included, in which one trigger has another output, and the outputs.

    The trigger is a random one of those whose answer changes (see `changes`); one whose output is a trigger, itself
    perhaps, only if there is no other. `allowed` says which tokens may become the output of each trigger. `noise_token`
    may follow a trigger in place of its output; -1: nothing. Raises InputError where no answer of a sequence changes.
    """
    triggers, outputs = batch.known["triggers"], batch.known["outputs"]
    marked = _marked(batch, noise_token)
    is_trigger = torch.zeros_like(allowed[:, 0]).scatter(1, triggers.clamp(min=0), True)
    free = allowed & ~is_trigger[:, None]
    free = free.scatter(2, outputs.clamp(min=0)[..., None], False)
    usable = _answers(batch, marked).any(-1) & free.any(-1)
    if not usable.any(1).all():
        n_unusable = int((~usable.any(1)).sum())
        raise InputError(
            "exchange_output needs sequences in which a trigger's output is shown and asked for again; "
            f"{n_unusable} of {len(batch)} are not; select the others with task.exchangeable(batch)"
        )
    scores = torch.rand(usable.shape, generator=generator, device=generator.device, dtype=torch.float32).to(
        triggers.device
    )
    chosen = (scores + 4 * usable - 2 * is_trigger.gather(1, outputs.clamp(min=0))).argmax(1)[:, None]
    tokens = marked.gather(1, chosen[..., None].expand(-1, -1, marked.shape[2]))[:, 0]
    candidates = free.gather(1, chosen[..., None].expand(-1, -1, free.shape[2]))[:, 0]
    scores = torch.rand(candidates.shape, generator=generator, device=generator.device, dtype=torch.float32).to(
        triggers.device
    )
    new = torch.where(candidates, scores - _n_impossible(tokens, chain), -torch.inf).argmax(1)[:, None]
    return torch.where(tokens == _NEW, new, tokens), outputs.scatter(1, chosen, new)


def changes(batch: Batch, *, noise_token: int = -1) -> Bool[Tensor, "batch trigger"]:
    """True where an answer that the context gives changes with the output of a trigger.

    The trigger then stands somewhere, followed by its output, after its output was shown, under the new output as well.
    """
    return _answers(batch, _marked(batch, noise_token)).any(-1)


def _marked(batch: Batch, noise_token: int) -> Int[Tensor, "batch trigger place"]:
    """The sequences with a mark in the place of the output of every trigger in turn."""
    tokens = torch.cat((batch.inputs, batch.targets[:, -1:]), 1)
    triggers = batch.known["triggers"]
    marked = [tokens[:, :1].expand_as(triggers)]
    for given in tokens[:, 1:].T:
        follows = (marked[-1] == triggers) & (given != noise_token)[:, None]
        marked.append(torch.where(follows, _NEW, given[:, None]))
    return torch.stack(marked, -1)


def _answers(batch: Batch, marked: Int[Tensor, "batch trigger place"]) -> Bool[Tensor, "batch trigger pos"]:
    """True where the trigger stands in both and its output follows, which has been shown in both."""
    stands = (marked[..., :-1] == batch.inputs[:, None]) & (batch.inputs[:, None] == batch.known["triggers"][..., None])
    follows = marked[..., 1:] == _NEW
    return stands & follows & (follows.cumsum(-1) > 1)


def _n_impossible(
    tokens: Int[Tensor, "batch place"], chain: Float[Tensor, "state token"]
) -> Int[Tensor, "batch state"]:
    """The number of transitions from marked places that the chain would never make, for every token in their place."""
    after = torch.nn.functional.one_hot(tokens[:, 1:].clamp(min=0), len(chain)) * (tokens[:, :-1, None] == _NEW)
    return (after.sum(1).double() @ (chain == 0).double().T).long()


def report(
    clean: Batch, corrupted: Batch, *, chain: Float[Tensor, "state token"], noise_token: int = -1
) -> dict[str, float]:
    """Measures of the quality of pairs.

    `answer_changed`: share of the pairs in which the exchanged trigger has another target, at the last place where it
    stands in both, with an earlier occurrence, and is followed by no noise token. `impossible`: share of corrupted
    sequences with a transition that the chain never makes. `tokens_changed`: mean share of the tokens that differ.
    """
    exchanged = (clean.known["outputs"] != corrupted.known["outputs"]).int().argmax(1)[:, None]
    asked = torch.ones_like(clean.scored)
    for batch in (clean, corrupted):
        found = batch.latents
        asked &= (found["trigger"] == exchanged) & (found["occurrence"] > 1) & (batch.targets != noise_token)
    last = asked & (asked.flip(1).cumsum(1).flip(1) == 1)
    free = corrupted.latents["occurrence"] == 0
    never = free & (chain[corrupted.inputs, corrupted.targets] == 0)
    whole = [torch.cat((batch.inputs, batch.targets[:, -1:]), 1) for batch in (clean, corrupted)]
    return {
        "answer_changed": float((last & (clean.targets != corrupted.targets)).any(1).double().mean()),
        "impossible": float(never.any(1).double().mean()),
        "tokens_changed": float((whole[0] != whole[1]).double().mean()),
    }
