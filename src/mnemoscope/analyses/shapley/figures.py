"""From outcomes at every place to figures by skill, with their errors over sequences and over samples.

Shapley values are linear in the game, so that those of each place are averaged like any other score of a place.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.ablation.dissociation import Z
from mnemoscope.analyses.neurons.places import Places
from mnemoscope.analyses.shapley.game import Play, pairs
from mnemoscope.analyses.shapley.play import METRICS
from mnemoscope.analyses.shapley.sampled import spread


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Values of players, then of pairs, with their errors over sequences and over samples."""

    value: Float[Tensor, "index skill metric"]
    error: Float[Tensor, "index skill metric"]
    sampling_error: Float[Tensor, "index skill metric"]
    low: Float[Tensor, "index skill metric"]
    high: Float[Tensor, "index skill metric"]


def shares(parts: Iterable[Float[Tensor, "index outcome"]], places: Places) -> Shares:
    """Figures of one exact reading of a game, or of several independent estimates; a single one has no spread."""
    total, means = torch.zeros(()), []
    for part in parts:
        total = total + part
        means.append(_read(part, places)[0])
    value, error = _read(total / len(means), places)
    sampling, width = spread(torch.stack(means)) if len(means) > 1 else (torch.zeros_like(value),) * 2
    half = ((Z * error).square() + width.square()).sqrt()
    return Shares(value=value, error=error, sampling_error=sampling, low=value - half, high=value + half)


def _read(
    outcome: Float[Tensor, "index outcome"], places: Places
) -> tuple[Float[Tensor, "index skill metric"], Float[Tensor, "index skill metric"]]:
    """Means over the places of each skill, and their standard errors over sequences."""
    by_metric = outcome.to(places.weights).unflatten(1, (len(METRICS), -1)).unbind(1)
    means, errors = ([read(values) for values in by_metric] for read in (places.means, places.errors))
    return torch.stack(means, -1).cpu(), torch.stack(errors, -1).cpu()


def ends(play: Play, places: Places, n: int) -> dict[str, Tensor]:
    """The whole model, the model without any player, and what is lost without each of them alone."""
    there = torch.cat((torch.ones(1, n), torch.zeros(1, n), 1 - torch.eye(n))).bool()
    outcome = play(there)
    (full, empty, carried), (_, _, carried_error) = _read(
        torch.stack((outcome[0], outcome[1], outcome[0] - outcome[1])), places
    )
    lost, lost_error = _read(outcome[:1] - outcome[2:], places)
    return {
        "full": full,
        "empty": empty,
        "carried": carried,
        "carried_error": carried_error,
        "lost": lost,
        "lost_error": lost_error,
    }


def by_player(shares: Shares, n: int) -> dict[str, Tensor]:
    """Values over players, and interactions over two of them."""
    result = {}
    for name, values in vars(shares).items():
        result[name] = values[:n]
        if len(values) > n:
            square = values.new_full((n, n, *values.shape[1:]), torch.nan)
            first, second = pairs(n).T
            square[first, second] = square[second, first] = values[n:]
            result["interaction" if name == "value" else f"interaction_{name}"] = square
    return result
