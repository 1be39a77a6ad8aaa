r"""Reconstructions of dictionaries of sparse features: how much of an activation, and of what the model does with it.

Measured on a batch, over all its positions that are no padding:

- `variance_explained`, :math:`1 - \sum |y - \hat y|^2 / \sum |y - \bar y|^2`, of what is reconstructed;
- `loss` with the reconstruction in the place of the activation (the error is left out), at scored positions; and
  `recovered`, (baseline - loss) / (baseline - clean loss), where the baseline has zeros there, or the mean over the
  sequences of the batch, position by position (Gao et al. 2024, "Scaling and evaluating sparse autoencoders");
- `l0`, the mean number of active features; `dead`, the share of features that are active nowhere in the batch.

*Does not show* that the model uses a feature. One direction may have nearly all of the variance and matter little:
`recovered` against the mean is the strictest of these measures.
"""

from collections.abc import Callable, Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core import metrics
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.runtime import progress
from mnemoscope.engine.budget import split_into_passes
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.recordings import record_activations

BASELINES = ("zero", "mean")
"""Replacements of the activation in the baselines."""
MEASURES = ("variance_explained", "loss", "l0", "dead")
Splice = Callable[[Tensor, Tensor], Tensor]
"""From what is read and what is written to what takes its place; both `batch pos width`."""


@check_arguments
@torch.no_grad()
def dictionary_quality(model: ModelLike, dictionaries: Sequence[Dictionary], batch: Batch) -> xr.Dataset:
    """Reconstruction, share of the loss recovered, active and dead features of dictionaries of one model.

    Args:
        model: A run, a subject or any hooked model.
        dictionaries: Of this model; their names must differ.
        batch: Sequences that they were not trained on; weights of rows count.

    Returns:
        Over `dictionary`, by name: `variance_explained`, `loss` (nats, or squared error), `l0` (features), `dead`
        (share) and `n_features`; over (dictionary, baseline): `baseline_loss` and `recovered`, NaN where a baseline is
        no worse than the model; and `clean_loss`.

    Raises:
        InputError: A dictionary does not fit the model, names are equal, or the batch does not fit or scores nothing.

    >>> features = ms.train_dictionary(run, recipe=ms.DictionaryRecipe(width=1, n_steps=50))
    >>> found = ms.analyses.dictionary_quality(model, [features], batch)
    >>> found.recovered.dims, 0 < found.l0.item() <= 8
    (('dictionary', 'baseline'), True)
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    batch.check_scored()
    names = [each.name for each in dictionaries]
    if not names or len({*names}) < len(names):
        raise InputError(f"dictionaries must be at least one, of different names; got {', '.join(names) or 'none'}")
    clean, baselines, rows = _loss(model, batch), {}, []
    for each in progress(dictionaries):
        read, written = each.hooks(model.cfg)
        found = record_activations(model, batch, {read, written}, by_engine=True)
        here = each.to(found[read].device, found[read].dtype)
        if written not in baselines:
            baselines[written] = _baseline_losses(model, batch, written, found[written])
        spliced = _loss(model, batch, (read, written), lambda x, y, here=here: here.reconstruct(x))
        rows.append(
            {**_reconstruction(here, batch, found[read], found[written]), **baselines[written], "loss": spliced}
        )
    recovered = [[_recovered(row["loss"], row[kind], clean) for kind in BASELINES] for row in rows]
    return xr.Dataset(
        {
            **{name: ("dictionary", [row[name] for row in rows]) for name in MEASURES},
            "n_features": ("dictionary", [each.n_features for each in dictionaries]),
            "baseline_loss": (("dictionary", "baseline"), [[row[kind] for kind in BASELINES] for row in rows]),
            "recovered": (("dictionary", "baseline"), recovered),
            "clean_loss": clean,
        },
        coords={"dictionary": names, "baseline": list(BASELINES)},
        attrs={"unit": batch.loss_unit, "spliced": "reconstruction without error", "n": len(batch)},
    )


def _recovered(loss: float, baseline: float, clean: float) -> float:
    return (baseline - loss) / (baseline - clean) if baseline > clean else float("nan")


def _reconstruction(dictionary: Dictionary, batch: Batch, x: Tensor, y: Tensor) -> dict[str, float]:
    """Variance explained, active and dead features, from what is read and written at all positions."""
    real = batch.real.to(x.device)
    x, y, weights = x[real], y[real], _weights(batch).to(y)[real]
    features = dictionary.encode(x)
    mean = (weights[:, None] * y).sum(0) / weights.sum()
    error = y - dictionary.decode(features, x)
    left, total = ((weights * part.square().sum(-1)).sum() for part in (error, y - mean))
    active = features > 0
    return {
        "variance_explained": float(1 - left / total),
        "l0": float((weights * active.sum(-1)).sum() / weights.sum()),
        "dead": float((~active.any(0)).double().mean()),
    }


def _baseline_losses(model: HookedModel, batch: Batch, place: str, activation: Tensor) -> dict[str, float]:
    """The loss with zeros, or the mean over sequences, in the place of an activation."""
    weights = (batch.real.to(activation.device) * _weights(batch).to(activation))[..., None]
    mean = (activation * weights).sum(0) / weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)
    values = {"zero": torch.zeros_like(mean), "mean": mean}
    return {name: _loss(model, batch, (place, place), lambda x, y, v=v: v.expand_as(y)) for name, v in values.items()}


def _loss(
    model: HookedModel, batch: Batch, places: tuple[str, str] | None = None, splice: Splice | None = None
) -> float:
    """The mean loss at scored positions, with `splice` of two activations in the place of the second."""
    seen: list[Tensor] = []

    def keep(activation: Tensor, hook: object) -> None:
        seen[:] = [activation]

    def put(activation: Tensor, hook: object) -> Tensor:
        assert splice is not None
        return splice(seen[0], activation)

    def run(inputs: Tensor) -> Tensor:
        return model.run_with_hooks(inputs, fwd_hooks=[] if places is None else [(places[0], keep), (places[1], put)])

    total, weight = 0.0, 0.0
    for rows, where in split_into_passes(model, batch.scored):
        logits = logits_at(model, batch.inputs[rows], where, run).double()
        weights = _weights(batch)[rows][where].to(logits)
        losses = metrics.loss(logits, _like(batch.targets[rows][where].to(logits.device), logits))
        total, weight = total + float((losses * weights).sum()), weight + float(weights.sum())
    return total / weight


def _like(targets: Tensor, outputs: Tensor) -> Tensor:
    return targets.to(outputs.dtype) if targets.is_floating_point() else targets.long()


def _weights(batch: Batch) -> Float[Tensor, "batch pos"]:
    """The weight of every place: that of its sequence."""
    weights = torch.ones(len(batch)) if batch.weights is None else batch.weights.cpu()
    return weights[:, None].expand(batch.inputs.shape[:2]).to(batch.inputs.device)
