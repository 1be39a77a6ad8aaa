"""Agreement of dictionaries: their features, matched by activations on the same inputs.

Every feature is correlated with every feature of the other dictionary, over all positions of a batch. Partners are
assigned one to one so that the sum of their correlations is largest. (Paulo and Belrose 2025, "Sparse autoencoders
trained on the same data learn different features", match by weights, which two models do not share.) Features without
variance on the batch are dead and have no partner. For comparison the sequences of the other side are shuffled, with
positions kept, so that features that know their position only still agree.

*Does not show* that partners write the same, or that the model uses them: they are active together.
"""

import torch
import xarray as xr
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, check_is_batch
from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.runtime import progress
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.recordings import record_activations

MAX_MATCHED = 4096
"""Features of a dictionary that can be matched: time grows with the third power."""
_ROUNDING = 1e-9
Side = tuple[ModelLike, Dictionary]
"""A dictionary and its model."""


@check_arguments
@torch.no_grad()
def dictionary_agreement(
    one: Side, other: Side, batch: Batch, *, threshold: float = 0.7, n_draws: int = 20, seed: int = 0
) -> xr.Dataset:
    """Features of two dictionaries, of one model or of two, matched by their activations on the same inputs.

    Args:
        one: A model with its dictionary.
        other: Another dictionary, with the same model or another one that reads the same inputs.
        batch: The inputs; sequences of one length.
        threshold: Correlation that a partner has at least.
        n_draws: Shuffles of the sequences for comparison, at least 20.
        seed: Shuffles draw from this seed's stream `agreement`.

    Returns:
        Over `side` (`one`, `other`): `share`, the share of features that are not dead with a partner at or above the
        threshold, NaN where all are dead; `dead`, the share of dead features; and `n_features`. `similarity`, the mean
        correlation of partners. Of shuffled sequences, along `draw`: `shuffled_share` and `shuffled_similarity`. Over
        `feature`, those of `one`: `partner`, -1 where there is none, and `correlation`, NaN there.

    Raises:
        InputError: A dictionary does not fit its model or has more than 4096 features, or the batch is ragged or small.

    >>> features = [ms.train_dictionary(run, recipe=ms.DictionaryRecipe(width=1, n_steps=50), seed=s) for s in (0, 1)]
    >>> found = ms.analyses.dictionary_agreement((run, features[0]), (run, features[0]), batch)
    >>> found.share.values.tolist(), round(found.similarity.item(), 6)
    ([1.0, 1.0], 1.0)
    """
    check_is_batch(batch)
    in_range("n_draws", n_draws, 20, float("inf"))
    if batch.ragged or len(batch) < 2:
        raise InputError("features are matched on at least two sequences of one length; the batch has others")
    activations = [_activations(*side, batch) for side in (one, other)]
    found = match_activations(activations[0], activations[1], threshold=threshold, n_draws=n_draws, seed=seed)
    found = found.rename(unit="feature", n_units="n_features")
    return found.assign_attrs(one=str(one[1]), other=str(other[1]), n=len(batch))


@torch.no_grad()
def match_activations(
    one: Float[Tensor, "batch pos unit"],
    other: Float[Tensor, "batch pos other_unit"],
    *,
    threshold: float = 0.7,
    n_draws: int = 20,
    seed: int = 0,
) -> xr.Dataset:
    """Units of any kind, matched one to one by their activations on the same inputs, as dictionaries are.

    Args:
        one: Activations of units, such as the neurons of a layer.
        other: Activations of other units on the same sequences, in the same order.
        threshold: Correlation that a partner has at least.
        n_draws: Shuffles of the sequences of `other`, for comparison.
        seed: Shuffles draw from this seed's stream `agreement`.

    Returns:
        As `dictionary_agreement`, with `unit` and `n_units` in place of `feature` and `n_features`.

    Raises:
        InputError: The inputs differ in number, there are fewer than two sequences, or the threshold is no correlation.

    >>> post = ms.analyses.neuron_activity(model, batch).activation[:, None]
    >>> ms.analyses.match_activations(post, post.flip(-1)).share.values.tolist()
    [1.0, 1.0]
    """
    in_range("threshold", threshold, -1, 1)
    in_range("n_draws", n_draws, 1, float("inf"))
    if one.shape[:2] != other.shape[:2] or len(one) < 2:
        raise InputError(
            "activations are matched on the same sequences, at least two of them; got "
            f"{tuple(one.shape[:2])} and {tuple(other.shape[:2])} sequences and positions"
        )
    (first, alive), (second, others) = (_standardised(each) for each in (one, other))
    draws = generator(seed, "agreement")
    shuffled = []
    for _ in progress(range(n_draws)):
        order = torch.randperm(len(one), generator=draws).to(second.device)
        shuffled.append(_match(first, second[order]))
    partner, correlation = torch.full((len(alive),), -1), torch.full((len(alive),), float("nan"))
    rows, columns, values = _match(first, second)
    places = alive.nonzero()[:, 0].cpu()[rows]
    partner[places], correlation[places] = others.nonzero()[:, 0].cpu()[columns], values.float()
    sizes = [int(alive.sum()), int(others.sum())]

    def shares(values: Tensor) -> list[float]:
        n = int((values >= threshold - _ROUNDING).sum())
        return [n / size if size else float("nan") for size in sizes]

    return xr.Dataset(
        {
            "share": ("side", shares(values)),
            "similarity": float(values.mean()),
            "shuffled_share": (("draw", "side"), [shares(draw[2]) for draw in shuffled]),
            "shuffled_similarity": ("draw", [float(draw[2].mean()) for draw in shuffled]),
            "dead": ("side", [float((~each).double().mean()) for each in (alive, others)]),
            "n_units": ("side", [len(alive), len(others)]),
            "partner": ("unit", to_numpy(partner)),
            "correlation": ("unit", to_numpy(correlation)),
        },
        coords={"side": ["one", "other"], "unit": range(len(alive)), "draw": range(n_draws)},
        attrs={"threshold": threshold, "n": len(one)},
    )


def _activations(model: ModelLike, dictionary: Dictionary, batch: Batch) -> Float[Tensor, "batch pos feature"]:
    """Activations of features at all positions of a batch."""
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    in_range(f"the number of features of {dictionary.name}", dictionary.n_features, 1, MAX_MATCHED)
    read, _ = dictionary.hooks(model.cfg)
    x = record_activations(model, batch, {read}, by_engine=True)[read]
    return dictionary.to(x.device, x.dtype).encode(x)


def _standardised(
    activations: Float[Tensor, "batch pos unit"],
) -> tuple[Float[Tensor, "batch pos live"], Bool[Tensor, " unit"]]:
    """Activations of mean 0 and length 1 over the places, of the units that are not dead, and a mask of these."""
    centred = activations.double()
    centred = centred - centred.mean((0, 1))
    length = centred.square().sum((0, 1)).sqrt()
    alive = length > _ROUNDING * (length.max() + _ROUNDING)
    return centred[..., alive] / length[alive], alive


def _match(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of the assignment with the largest sum of correlations."""
    correlation = torch.einsum("bpf,bpg->fg", one, other.to(one.device)).cpu()
    rows, columns = (torch.from_numpy(each) for each in linear_sum_assignment(correlation.numpy(), maximize=True))
    return rows, columns, correlation[rows, columns]
