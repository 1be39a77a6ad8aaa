"""The worth of attention patterns and components to in-context prediction: the losses when they are changed.

Patterns of a whole layer, or of one head, are replaced by even attention over all keys (`uniform`) or by exact
attention to the previous token (`previous token`). At triggers they are replaced by attention spread evenly over the
tokens after all earlier occurrences of the trigger (`induction`), or to the last of those (`last induction`). Rows
about which a pattern says nothing stay as the model has them.

A cost is the rise of the loss, or the fall of accuracy, averaged over the positions of a class (`evaluation`). Below
zero the model does better without.

*Shows* that a pattern is needed (a high cost of `uniform`), or that no more than the named pattern is needed (a low
cost of an exact one).

*Does not show* how the head finds its keys, nor that it does this in other sequences. A component whose cost is low may
have a stand-in, and a mean is no natural input to later layers.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, Intervention, Mean, Named, SetPattern, Site, run_with
from mnemoscope.analyses import check_fits, to_log_probs
from mnemoscope.core import Mechanism, one_of
from mnemoscope.core.patterns import one_hot
from mnemoscope.interventions import Recordings
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import (
    CHUNK,
    at_every_position,
    mean_over,
    position_classes,
)
from mnemoscope.systems.in_context_bigrams.analyses.heads import EXACT_INDUCTION, EXACT_PREVIOUS, UNIFORM

By = Literal["layer", "head"]
PATTERNS: dict[str, Mechanism] = {
    "uniform": UNIFORM,
    "previous token": EXACT_PREVIOUS,
    "induction": EXACT_INDUCTION,
    "last induction": one_hot("attended"),
}
MEASURES = ("loss", "accuracy")


def pattern_costs(
    model: HookedModel, batch: Batch, *, by: By = "layer", mechanisms: Mapping[str, Mechanism] | None = None
) -> xr.Dataset:
    """The cost of replacing the attention patterns of each layer, or of each head, by each of some mechanisms.

    The batch is of in-context bigrams or noisy recall; mechanisms are by default the four of `PATTERNS`. Raises
    InputError for another task's batch, a model that is too small or predicts NaN, or a mechanism that gives no
    pattern.

    Returns:
        Over (component, pattern, position_class) `loss_cost` and `accuracy_cost`; over position_class `loss` and
        `accuracy` of the model itself. Components are `L0`, or `L0H0`.
    """
    one_of("by", by, get_args(By))
    chosen = PATTERNS if mechanisms is None else dict(mechanisms)
    heads = [None] if by == "layer" else list(range(model.cfg.n_heads))
    places = {
        f"L{layer}" + ("" if head is None else f"H{head}"): Site(kind="pattern", layer=layer, head=head)
        for layer in range(model.cfg.n_layers)
        for head in heads
    }
    changes = [SetPattern(site=site, mechanism=pattern) for site in places.values() for pattern in chosen.values()]
    clean, costs = _costs(model, batch, changes)
    shape = (len(places), len(chosen), -1)
    dims = ("component", "pattern", "position_class")
    coords = {"component": list(places), "pattern": list(chosen)}
    return _labelled(clean, {name: (dims, values.reshape(shape)) for name, values in costs.items()}, coords, batch)


def removal_costs(model: HookedModel, batch: Batch, *, reference: Batch) -> xr.Dataset:
    """The cost of replacing what a head or an MLP adds by its mean, position by position, over a reference set.

    The reference has sequences of the same length; else, and where `pattern_costs` does, it raises InputError.

    Returns:
        Over (component, position_class) `loss_cost` and `accuracy_cost`; over position_class `loss` and `accuracy` of
        the model itself. Components are `L0H0` and, where there are MLPs, `L0 MLP`.
    """
    sites = []
    for layer in range(model.cfg.n_layers):
        sites += [Site(kind="z", layer=layer, head=head) for head in range(model.cfg.n_heads)]
        sites += [] if model.cfg.attn_only else [Site(kind="mlp_out", layer=layer)]
    source = Named(name="reference", value=reference)
    clean, costs = _costs(model, batch, [Mean(site=site, source=source) for site in sites])
    coords = {"component": [str(site) for site in sites]}
    result = _labelled(
        clean, {name: (("component", "position_class"), values) for name, values in costs.items()}, coords, batch
    )
    return result.assign_attrs(ablation="mean over sequences, position by position", n_reference=len(reference))


def _costs(
    model: HookedModel, batch: Batch, changes: Sequence[Intervention]
) -> tuple[dict[str, Float[Tensor, " position_class"]], dict[str, Float[np.ndarray, "change position_class"]]]:
    check_fits(model, batch)
    recordings = Recordings(model)
    chunks = [batch.select(rows) for rows in torch.arange(len(batch)).split(CHUNK)]
    each = [_by_class(model, batch, chunks, done, recordings) for done in ([], *([change] for change in changes))]
    values = {name: torch.stack([one[name] for one in each]) for name in MEASURES}
    costs = {
        "loss_cost": (values["loss"][1:] - values["loss"][0]).numpy(),
        "accuracy_cost": (values["accuracy"][0] - values["accuracy"][1:]).numpy(),
    }
    return {name: value[0] for name, value in values.items()}, costs


def _by_class(
    model: HookedModel,
    batch: Batch,
    chunks: Sequence[Batch],
    changes: Sequence[Intervention],
    recordings: Recordings,
) -> dict[str, Float[Tensor, " position_class"]]:
    parts = [
        at_every_position(to_log_probs(run_with(model, chunk, changes, recordings=recordings)), chunk)
        for chunk in chunks
    ]
    rows = {name: torch.cat([part[name] for part in parts]) for name in MEASURES}
    classes = position_classes(batch)
    return {
        name: torch.tensor([mean_over(values, mask) for mask in classes.values()], dtype=torch.double)
        for name, values in rows.items()
    }


def _labelled(
    clean: Mapping[str, Tensor], costs: Mapping[str, tuple], coords: Mapping[str, list[str]], batch: Batch
) -> xr.Dataset:
    return xr.Dataset(
        {**costs, **{name: ("position_class", values.numpy()) for name, values in clean.items()}},
        coords={**coords, "position_class": list(position_classes(batch))},
        attrs={"unit": "loss: nats; accuracy: share", "n_sequences": len(batch), "weights": "unprocessed"},
    )
