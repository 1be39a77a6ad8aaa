"""The best prediction of a chain by a learner who knows the generator but neither triggers nor outputs.

What followed a token earlier is evidence on whether it is a trigger. Let it have been followed m times by the noise
token and otherwise, n times, by other tokens. If it is a trigger, these are all one token b, and have the likelihood
alpha^m (1 - alpha)^n p_o(b) with the probability p_o of its output; if it is none, the product of the global bigrams.
Different successors rule a trigger out, the noise token rules it in. The posterior that the current token is a trigger
then mixes two predictions: its output where that has been seen (else p_o, and the noise token with alpha), and the
global bigrams.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.systems.in_context_bigrams.successive_sampling import Draws, inclusion


@dataclass(frozen=True, kw_only=True, eq=False)
class HiddenTriggers:
    """The learner's knowledge of the generator.

    `chain` has the transitions of tokens that are no triggers, `outputs` the distribution of every token's output,
    should it be a trigger. With probability `noise` the `noise_token` follows a trigger in place of its output; -1:
    none.
    """

    chain: Float[Tensor, "state token"]
    outputs: Float[Tensor, "trigger token"]
    triggers: tuple[int, ...] | Draws
    noise: float = 0.0
    noise_token: int = -1


def predict(inputs: Int[Tensor, "batch pos"], known: HiddenTriggers) -> Float[Tensor, "batch pos token"]:
    """Probabilities of the next token at every position; NaN where the earlier tokens contradict the generator."""
    successor, seen = _output_seen(inputs, known)
    from_trigger = torch.where(seen[..., None], _one_hot(successor, len(known.chain)), known.outputs[inputs])
    if known.noise_token >= 0:
        from_trigger = (1 - known.noise) * from_trigger
        from_trigger[..., known.noise_token] += known.noise
    is_trigger = _posterior(inputs, known)[..., None]
    return is_trigger * from_trigger + (1 - is_trigger) * known.chain[inputs]


def global_bigram(known: HiddenTriggers) -> Float[Tensor, "token next_token"]:
    """Mean distribution after every token over triggers and outputs, as often as a sequence has it as a trigger."""
    if isinstance(known.triggers, Draws):
        is_trigger = known.triggers.inclusion[:, None]
    else:
        is_trigger = _mask(known)[:, None].double()
    from_trigger = (1 - known.noise) * known.outputs
    if known.noise_token >= 0:
        from_trigger[:, known.noise_token] += known.noise
    return is_trigger * from_trigger + (1 - is_trigger) * known.chain


def _one_hot(tokens: Int[Tensor, "batch pos"], n_tokens: int) -> Float[Tensor, "batch pos token"]:
    return torch.nn.functional.one_hot(tokens, n_tokens).double()


def _mask(known: HiddenTriggers) -> Bool[Tensor, " token"]:
    """True for tokens that are fixed triggers."""
    assert not isinstance(known.triggers, Draws)
    mask = torch.zeros(len(known.chain), dtype=torch.bool, device=known.chain.device)
    mask[list(known.triggers)] = True
    return mask


def _first(
    tokens: Int[Tensor, "batch pos"], n_tokens: int, where: Bool[Tensor, "batch pos"] | None = None
) -> Int[Tensor, "batch token"]:
    """The first position of every token (where `where` holds); the number of positions: there is none."""
    length = tokens.shape[1]
    place = torch.arange(length, device=tokens.device).expand_as(tokens)
    place = place if where is None else torch.where(where, place, length)
    return tokens.new_full((len(tokens), n_tokens), length).scatter_reduce(1, tokens, place, "amin")


def _output_seen(
    inputs: Int[Tensor, "batch pos"], known: HiddenTriggers
) -> tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
    """The first token but noise after the token at a position, and whether it came before that position."""
    followed = torch.zeros_like(inputs, dtype=torch.bool)
    followed[:, :-1] = inputs[:, 1:] != known.noise_token
    at = _first(inputs, len(known.chain), followed).gather(1, inputs)
    seen = at < torch.arange(inputs.shape[1], device=inputs.device)
    return inputs.gather(1, torch.where(seen, at + 1, 0)), seen


def _posterior(inputs: Int[Tensor, "batch pos"], known: HiddenTriggers) -> Float[Tensor, "batch pos"]:
    """Probability that the token at a position is a trigger."""
    inside, outside = _evidence(inputs, known)
    if isinstance(known.triggers, Draws):
        largest = torch.maximum(inside, outside)
        factors = ((values - largest).exp().nan_to_num(nan=0.0) for values in (inside, outside))
        return inclusion(known.triggers, inputs, _first(inputs, len(known.chain)), *factors)
    mask = _mask(known)
    contradicted = torch.where(mask, inside, outside).isneginf().any(-1)
    return torch.where(contradicted, torch.nan, mask[inputs].double())


def _evidence(
    inputs: Int[Tensor, "batch pos"], known: HiddenTriggers
) -> tuple[Float[Tensor, "batch pos token"], Float[Tensor, "batch pos token"]]:
    """Log-likelihood of what followed every token before a position, should it be a trigger, and should it not."""
    token, after = inputs[:, :-1], inputs[:, 1:]
    output, seen = _output_seen(inputs, known)
    is_noise, noise = after == known.noise_token, torch.tensor(known.noise, dtype=torch.double, device=inputs.device)
    shown = torch.where(seen[:, :-1], (after == output[:, :-1]).double(), known.outputs[token, after])
    inside = torch.where(is_noise, noise, (1 - noise) * shown).log()
    return _before(inputs, inside, known), _before(inputs, known.chain[token, after].log(), known)


def _before(
    inputs: Int[Tensor, "batch pos"], values: Float[Tensor, "batch step"], known: HiddenTriggers
) -> Float[Tensor, "batch pos token"]:
    """Sums over the earlier occurrences of every token."""
    each = values.new_zeros(*inputs.shape, len(known.chain))
    each[:, 1:].scatter_(2, inputs[:, :-1, None], values[..., None])
    return each.cumsum(1)
