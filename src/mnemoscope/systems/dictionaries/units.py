"""Units of an MLP, whose sum is what it writes: neurons, features of a transcoder, or neurons rotated at random.

A unit has an activation in each row and a value that it writes, and what is left is the rest:

    written = activation @ value + bias + error

For neurons and rotated neurons the error is 0. Rotated neurons are F a with a random frame F, F'F = 1, whose number can
exceed that of neurons; their values F W_out write the same in sum. A unit is removed by its mean over all sequences, or
by zero; the error is kept, or removed too.

*Recall by few units.* Starting with all units removed, the unit is kept that raises the mean log-probability of the
right answers most, then the next one, and so on: one order for all kinds. How many are needed is counted on other rows.

*Does not show* that a unit is one of the model: an order that is found step by step is not the best one, and units that
nothing depends on can be selective.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Dictionary, HookedModel, Subject
from mnemoscope.analyses import every_sequence, neuron_activity, selectivity
from mnemoscope.core import memoize
from mnemoscope.systems.dictionaries.answers import Answers, log_probs, read_answers, right

N_ROWS = 200
"""Rows on which the next unit is chosen."""
Removal = Literal["mean", "zero"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """Units of an MLP at the answers, and what it writes beside them."""

    activation: Float[Tensor, "row unit"]
    value: Float[Tensor, "unit d_model"]
    error: Float[Tensor, "row d_model"]


def neurons(model: HookedModel, answers: Answers) -> Units:
    """The neurons."""
    return Units(activation=answers.post, value=model.blocks[0].mlp.W_out, error=torch.zeros_like(answers.written))


def rotated(model: HookedModel, answers: Answers, n: int, generator: torch.Generator) -> Units:
    """Random combinations of neurons, `n` of them, at least as many as neurons, that write the same in sum."""
    value = model.blocks[0].mlp.W_out
    frame = torch.linalg.qr(torch.randn(n, len(value), generator=generator, dtype=torch.float32))[0].to(value)
    return Units(activation=answers.post @ frame.T, value=frame @ value, error=torch.zeros_like(answers.written))


def features(dictionary: Dictionary, answers: Answers) -> Units:
    """The features of a transcoder, with its error."""
    found = dictionary.encode(answers.read)
    written = dictionary.decode(found, answers.read)
    return Units(activation=found, value=dictionary.w_dec, error=answers.written - written)


@torch.no_grad()
def without(
    answers: Answers, units: Units, *, error: bool = True, removal: Removal = "mean"
) -> Float[Tensor, "row d_model"]:
    """The stream with all units removed, and the error kept or removed too."""
    if removal == "zero":
        constant = answers.written - units.activation @ units.value - units.error
        return answers.stream + (constant + units.error if error else constant)
    mean = answers.mean(answers.written)
    kept = units.error - answers.mean(units.error)
    return answers.stream + mean + kept if error else answers.stream + mean


def changes(answers: Answers, units: Units, *, removal: Removal = "mean") -> Float[Tensor, "row unit"]:
    """Activations less what replaces them."""
    return units.activation - answers.mean(units.activation) if removal == "mean" else units.activation


@torch.no_grad()
def keep_in_turn(
    model: HookedModel, answers: Answers, units: Units, n: int, *, error: bool, removal: Removal = "mean"
) -> Int[Tensor, " kept"]:
    """The first `n` units to keep, in turn."""
    rows = answers.chosen_on[:N_ROWS]
    stream = without(answers, units, error=error, removal=removal)[rows]
    change, target = changes(answers, units, removal=removal)[rows], answers.target[rows]
    found: list[int] = []
    for _ in range(min(n, len(units.value))):
        candidates = stream + change.T[:, :, None] * units.value[:, None]
        gain = log_probs(model, candidates)[:, torch.arange(len(rows)), target].mean(1)
        gain[found] = -torch.inf
        found.append(int(gain.argmax()))
        stream = candidates[found[-1]]
    return torch.tensor(found)


@torch.no_grad()
def n_needed(
    model: HookedModel,
    answers: Answers,
    units: Units,
    order: Int[Tensor, " kept"],
    *,
    error: bool,
    share: float,
    removal: Removal = "mean",
) -> int:
    """The smallest number of units, in that order, that keep the `share` of what the MLP adds to the right answers.

    The MLP adds the accuracy that is lost where all that it writes is removed. One more than there are in the order
    where they do not keep it.
    """
    rows = answers.measured_on
    stream = without(answers, units, error=error, removal=removal)[rows]
    change, target = changes(answers, units, removal=removal)[rows], answers.target[rows]
    none, whole = ends(model, answers, removal=removal)
    for n in range(len(order) + 1):
        if n:
            stream = stream + change[:, order[n - 1], None] * units.value[order[n - 1]]
        if right(model, stream, target)[0] >= none + share * (whole - none):
            return n
    return len(order) + 1


@torch.no_grad()
def ends(model: HookedModel, answers: Answers, *, removal: Removal = "mean") -> tuple[float, float]:
    """Accuracy where what the MLP writes is removed, and of the model as it is."""
    rows = answers.measured_on
    stream, target = answers.stream[rows], answers.target[rows]
    removed = stream + answers.mean(answers.written) if removal == "mean" else stream
    return right(model, removed, target)[0], right(model, stream + answers.written[rows], target)[0]


def explained(subject: Subject, units: Units, chosen: Int[Tensor, " chosen"], *, n_states: int | None = None) -> float:
    """The share of the entropy of some units that the pair of last token and answer explains, on the second half.

    The states of a unit are active or not, or `n_states` quantiles. Shares are of the sum over the units, so that one
    that is hardly ever active counts little; 0 where none varies.
    """
    answers = read_answers(subject)
    rows = answers.measured_on
    activation, latents = units.activation[rows][:, chosen].double(), {"pair": answers.pair[rows]}
    activity = replace(_activity(subject), activation=activation, latents=latents)
    found = selectivity(activity, n_states=n_states, n_draws=1)
    entropy = float(found.neuron_entropy.sum())
    return float(found.information.sum()) / entropy if entropy > 0 else 0.0


@memoize
def _activity(subject: Subject) -> Any:
    """The record of activity on the second half, in which activations and latents are exchanged."""
    rows = read_answers(subject).measured_on
    return neuron_activity(subject.model, every_sequence(subject.task).select(rows), pos=-1)
