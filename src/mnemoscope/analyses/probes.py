"""Linear probes: what can be read from an activation, beside controls.

A linear probe is fitted on some sequences and scored on others (Alain & Bengio 2016, "Understanding intermediate
layers using linear classifier probes"). Its score alone says little, for two reasons, and each has a control.

- A flexible probe can learn rows by heart. `shuffled`: the same probe on labels that are permuted among sequences. The
  difference is a selectivity in the sense of Hewitt & Liang 2019, "Designing and interpreting probes with control
  tasks"; their control gives labels to word types, here a sequence is the unit. Sequences that begin alike share their
  activations until they part, so that such a probe would know test rows from the fit: see `probe_rows`.
- Random weights make random functions of the input, from which tokens, and much that follows from them, can be read. A
  score above chance on an untrained model is expected. The same probe on control models of the same architecture shows
  how much training has added, and that selectivity is the one that counts.

`information` is the usable information of Xu et al. 2020, "A theory of usable information under computational
constraints", for linear maps with this penalty.

It shows that a value can be read linearly from an activation, on sequences that the probe has not seen. It does not
show that the model reads it: see `subspaces`. Nor does it show that what is not read linearly is not there.

A probe is a logistic regression for classes and a ridge regression for numbers, both of scikit-learn. Boolean and whole
latents are classes, floating ones numbers. "None" written as -1 is a class like any other and NaN is refused: a Boolean
latent `where` says which rows count. Inputs are standardised column by column. A column that varies by less than a
millionth of the largest activation is taken as constant, since standardising would turn its rounding errors into a
signal. The penalty is fixed beforehand.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Shaped
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, recall_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.probe_rows import (
    check_disjoint,
    check_latent_values,
    draw_halves,
    latent_mask,
    latent_values,
    permute_sequences,
    row_groups,
    rows_that_begin_alike,
    split_sequences,
)
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ATTENTION, BY_HEAD, Site
from mnemoscope.engine.budget import MAX_BYTES, float_bytes
from mnemoscope.interventions.graph import check_exists
from mnemoscope.interventions.measurement import weight_processing
from mnemoscope.interventions.recordings import head_results, record_activations, recorded_hook
from mnemoscope.interventions.replacements import region


def check_site(model: HookedModel, site: Site) -> None:
    """Refuse a site that holds no single vector per position: attention weights, or all heads at once."""
    check_exists(model, site)
    if site.kind in ATTENTION:
        raise InputError(
            f"a probe reads one vector per position; {site} holds one number per query and key: take q, k or z"
        )
    if site.kind in BY_HEAD and site.head is None:
        raise InputError(f"a probe reads one vector per position; name a head of {site}, or take attn_out")


def site_positions(site: Site, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """True at the places of a site in each sequence."""
    mask = region(replace(site, head=None, neuron=None), batch, batch.scored[..., None])
    return mask.flatten(2)[..., 0].expand(batch.scored.shape)


@torch.no_grad()
def site_vectors(
    model: HookedModel, batch: Batch, sites: Sequence[Site], *, dtype: torch.dtype | None = torch.double
) -> list[Float[Tensor, "batch pos width"]]:
    """The activations at some sites, at all positions; refuses NaN and infinite ones. No `dtype`: the model's own."""
    found = record_activations(model, batch, {recorded_hook(site) for site in sites})
    result = [_site_part(model, site, found[recorded_hook(site)]) for site in sites]
    result = [x if dtype is None else x.to(dtype) for x in result]
    for site, activation in zip(sites, result, strict=True):
        if not activation.isfinite().all():
            raise InputError(f"the activations at {site} hold NaN or infinity; check the model's weights")
    return result


def _site_part(model: HookedModel, site: Site, activation: Tensor) -> Tensor:
    if site.kind == "result" and site.layer is not None:
        activation = head_results(model, site.layer, activation)
    if site.head is not None:
        return activation[:, :, site.head]
    return activation if site.neuron is None else activation[..., site_neurons(site)]


def site_neurons(site: Site) -> list[int]:
    """The neurons that a site names."""
    return list(site.neuron) if isinstance(site.neuron, tuple) else [site.neuron]  # pyright: ignore[reportReturnType]


RESOLUTION = 1e-6
"""Share of the largest activation below which a deviation is a rounding error."""
PENALTY = 1.0
"""Default weight of the squared norm of the coefficients; scikit-learn's own (`C = 1`, `alpha = 1`)."""
_ITERATIONS = 2000


def fit_probe(x: Float[np.ndarray, "row width"], y: Shaped[np.ndarray, " row"], penalty: float = PENALTY) -> Pipeline:
    """A probe fitted to rows; floating `y` are numbers, others classes.

    With z the standardised inputs it minimises the sum over rows of -log p(y | z), plus penalty / 2 |w|^2, for classes,
    and of (y - w.z - b)^2, plus penalty |w|^2, for numbers.
    """
    in_range("penalty", penalty, 1e-12, float("inf"))
    scaler = StandardScaler().fit(x)
    scaler.scale_ = np.where(x.std(0) > RESOLUTION * np.abs(x).max(), np.asarray(scaler.scale_), np.inf)
    model = Ridge(alpha=penalty) if is_number(y) else LogisticRegression(C=1 / penalty, max_iter=_ITERATIONS)
    return make_pipeline(scaler, model.fit(scaler.transform(x), y))


def is_number(y: Shaped[np.ndarray, "..."]) -> bool:
    """True if values are numbers and not classes."""
    return np.issubdtype(y.dtype, np.floating)


def probe_scores(
    probe: Pipeline,
    x: Float[np.ndarray, "row width"],
    y: Shaped[np.ndarray, " row"],
    fit_y: Shaped[np.ndarray, " fit_row"],
) -> dict[str, float]:
    """The quality of a probe's readings of rows that it was not fitted on.

    For classes `accuracy`; `chance`, the accuracy of the class most frequent in `fit_y`; `balanced_accuracy`, the mean
    of the accuracies of each class; `information` in bits, the mean of log2 p(y | x) / p(y) with p(y) the frequency in
    `fit_y`, NaN where a class of `y` is not among these. For numbers `r2`.
    """
    if is_number(y):
        return {"r2": float(r2_score(y, probe.predict(x)))}
    guess = probe.predict(x)
    classes, counts = np.unique(fit_y, return_counts=True)
    return {
        "accuracy": float((guess == y).mean()),
        "chance": float((y == classes[counts.argmax()]).mean()),
        "balanced_accuracy": float(recall_score(y, guess, labels=np.unique(y), average="macro")),
        "information": _information(probe.predict_log_proba(x), y, classes, counts / counts.sum()),
    }


def _information(
    log_probs: Float[np.ndarray, "row class"],
    y: Shaped[np.ndarray, " row"],
    classes: Shaped[np.ndarray, " class"],
    frequencies: Float[np.ndarray, " class"],
) -> float:
    if not np.isin(y, classes).all():
        return float("nan")
    place = np.searchsorted(classes, y)
    gained = log_probs[np.arange(len(y)), place] - np.log(frequencies[place])
    return float(gained.mean() / np.log(2))


def probe_directions(probe: Pipeline) -> Float[Tensor, "direction width"]:
    """The coefficients of a probe on the activations themselves, a row per class (one for two classes, or a number)."""
    scaler, model = (step for _, step in probe.steps)
    return torch.from_numpy(np.atleast_2d(model.coef_) / scaler.scale_)


@check_arguments
def probe(
    model: ModelLike,
    fit: Batch,
    latent: str,
    *,
    sites: Sequence[Site],
    test: Batch | None = None,
    groups: str | None = None,
    where: str | None = None,
    pooled: bool = False,
    controls: Mapping[str, ModelLike] | None = None,
    n_shuffles: int = 10,
    penalty: float = PENALTY,
    per_prompt: bool = False,
    seed: int = 0,
) -> xr.Dataset:
    """Probes for a latent at sites, one for every position or one for all.

    Args:
        model: A run, a subject or any hooked model; one recorded forward pass serves all sites.
        fit: Sequences to fit on. Every one counts alike, whatever its weight.
        latent: Its name: one value per sequence or per position, `y[2]` for a column, `token` or `target`. Boolean and
            whole values are classes, floating ones numbers. Values of your own: `with_latent`.
        sites: Where to read; a site's `pos` restricts the positions.
        test: Sequences to score on, of another split, say; none: half of the different sequences of `fit`, and only
            the other half is fitted on. There rows that are equal up to the position that is probed are in one half;
            where that leaves one group, or with `pooled`, they are not tested on.
        groups: A latent with one value per sequence, such as the subject of a prompt: rows of one value are in one
            half. Not with `test`.
        where: A Boolean latent: only rows where it holds count; none: all, a value -1 for "none" being a class.
        pooled: One probe for the rows of all positions in place of one per position.
        controls: Models by name, such as untrained ones, that are probed in the same way.
        n_shuffles: How often labels are permuted.
        penalty: Of the probe, see `fitted`. Choose it without a look at the result.
        per_prompt: Whether results have what is read of every sequence of `test` too, for `ms.audit`; not `pooled`.
        seed: Halves and permutations are drawn from streams of it.

    Returns:
        Over (site, pos), or over site if pooled: `accuracy`, `chance`, `balanced_accuracy` and `information` (bits),
        or `r2` for numbers; `n_fit` and `n_test`, the numbers of rows. `shuffled` (draw, ...) and `control_score`
        (control, ...): the accuracy (or R²) of the controls. `selectivity` (against, ...): the accuracy minus the mean
        of `shuffled`, and minus that of each control. NaN where there are no rows, or the latent takes a single value
        in the rows to fit. Positions of no site are left out. With `per_prompt` also `prediction` and `label`, along
        `prompt`, the sequences of `test`; NaN where a sequence is not tested.

    Raises:
        InputError: A site or latent is not to be probed, fit and test share a sequence, a latent or activation is NaN,
            or a model does not fit.

    >>> fit = task.sample(200, split="train", generator=ms.generator(0, "fit"))
    >>> site = ms.Site(kind="resid_post", layer=0, pos=-1)
    >>> found = ms.probe(model, fit, "is_repeat", sites=[site], test=batch, n_shuffles=2)
    >>> found.accuracy.dims
    ('site', 'pos')
    """
    model = resolve_model(model, fit=fit)
    in_range("n_shuffles", n_shuffles, 1, math.inf)
    if not sites or len(set(sites)) < len(sites):
        raise InputError(f"sites must name at least one, each once; got {', '.join(map(str, sites)) or 'none'}")
    models = [model, *map(resolve_model, (controls or {}).values())]
    if per_prompt and (test is None or pooled):
        given = "pooled" if pooled else "no test"
        raise InputError(f"per_prompt needs test and a probe for every position; got {given}: take split_sequences")
    if groups is not None and test is not None:
        raise InputError("groups says how fit is split; with test give both sides, without a group in common")
    for one, side in product(models, (fit,) if test is None else (fit, test)):
        check_fits(one, side, vectors=True)
    for one, site in product(models, sites):
        check_site(one, site)
    sides = split_sequences(fit, seed=seed, groups=groups) if test is None else (fit, test)
    check_disjoint(*sides)
    read = _positions_of(sites, fit) & latent_mask(fit, where)
    columns = [slice(None)] if pooled else [slice(p, p + 1) for p in range(read.shape[1]) if read[:, p].any()]
    causal, found, shared = model.cfg.attention_dir == "causal", {}, 0.0
    for own, parts in _splits(
        sides, fit if test is None and causal and not pooled else None, read, columns, groups, seed
    ):
        values = [latent_values(side, latent) for side in parts]
        counting = [latent_mask(side, where) for side in parts]
        for of_side, mask in zip(values, counting, strict=True):
            check_latent_values(latent, of_side, mask)
        if causal:
            known = rows_that_begin_alike(*parts, *counting)
            tested = counting[1] & _positions_of(sites, parts[1])
            shared = max(shared, float((known & tested).sum() / tested.sum().clamp(min=1)))
            counting[1] = counting[1] & ~known if test is None else counting[1]
        masks = [
            [mask & site_positions(site, side) for mask, side in zip(counting, parts, strict=True)] for site in sites
        ]
        for number, (mask, x) in enumerate(zip(masks, _record_sites(models, parts, sites), strict=True)):
            streams = [generator(seed, "shuffled labels", draw) for draw in range(n_shuffles)]
            shuffles = [
                [permute_sequences(v, m, stream) for v, m in zip(values, mask, strict=True)] for stream in streams
            ]
            found |= {(number, n): _cell(x, values, shuffles, mask, columns[n], penalty, per_prompt) for n in own}
    cells = [found[key] for key in sorted(found)]
    result = _dataset(cells, sites, None if pooled else [column.start for column in columns], list(controls or {}))
    labels = {} if pooled else sides[0].labels(pos=[column.start for column in columns])
    prompts = sides[1].prompt_labels() if per_prompt else {}
    return result.assign_coords({**labels, **prompts}).assign_attrs(
        latent=latent,
        where=where or "everywhere",
        penalty=penalty,
        n_fit=len(sides[0]),
        n_test=len(sides[1]),
        unit="R²" if "r2" in result else "share of rows; information in bits",
        weights=weight_processing(model),
        **({"shared": shared} if shared and test is not None else {}),
    )


def _positions_of(sites: Sequence[Site], batch: Batch) -> Bool[Tensor, "batch pos"]:
    """True where one of the sites is read."""
    return torch.stack([site_positions(site, batch) for site in sites]).any(0)


def _splits(
    sides: tuple[Batch, Batch],
    whole: Batch | None,
    read: Bool[Tensor, "batch pos"],
    columns: Sequence[slice],
    groups: str | None,
    seed: int,
) -> Iterator[tuple[list[int], tuple[Batch, Batch]]]:
    """Columns by number with the sides on which they are probed; `whole` is split anew where its rows begin alike."""
    if whole is None:
        yield list(range(len(columns))), sides
        return
    by_rows: dict[tuple[int, ...], list[int]] = {}
    for number, column in enumerate(columns):
        at = torch.zeros_like(read)
        at[:, column] = read[:, column]
        by_rows.setdefault(tuple(row_groups(whole, groups=groups, at=at).tolist()), []).append(number)
    for rows, numbers in by_rows.items():
        yield numbers, draw_halves(whole, torch.tensor(rows), seed) or sides


def _record_sites(
    models: Sequence[HookedModel], sides: Sequence[Batch], sites: Sequence[Site]
) -> Iterator[list[list[Tensor]]]:
    """The activations of every model on both sides, site by site; as many sites are recorded at once as fit."""
    numbers = sum(side.inputs[..., 0].numel() if side.has_vectors else side.inputs.numel() for side in sides)
    widest = max(max(one.cfg.d_model, one.cfg.d_mlp or 0, one.cfg.n_heads * one.cfg.d_head) for one in models)
    at_once = max(1, MAX_BYTES // (2 * len(models) * numbers * widest * float_bytes(models[0])))
    for start in range(0, len(sites), at_once):
        some = sites[start : start + at_once]
        found = [[site_vectors(one, side, some, dtype=None) for side in sides] for one in models]
        for i in range(len(some)):
            yield [[side[i] for side in of_one] for of_one in found]


def _rows(values: Sequence[Tensor], mask: Sequence[Tensor], column: slice) -> list[np.ndarray]:
    """The rows that count, of the sequences to fit and of those to test."""
    return [to_numpy(v[:, column][m[:, column]]) for v, m in zip(values, mask, strict=True)]


def _fitted(x: Sequence[np.ndarray], y: Sequence[np.ndarray], penalty: float) -> Pipeline | None:
    """A probe, unless there are no rows to test or a single value to fit."""
    return None if len(y[1]) == 0 or len(np.unique(y[0])) < 2 else fit_probe(x[0], y[0], penalty)


def _scored(x: Sequence[np.ndarray], y: Sequence[np.ndarray], penalty: float) -> dict[str, float]:
    probe = _fitted(x, y, penalty)
    return {} if probe is None else probe_scores(probe, x[1], y[1], y[0])


def _readings(
    probe: Pipeline | None, x: np.ndarray, y: np.ndarray, tested: Bool[np.ndarray, " batch"]
) -> dict[str, Float[np.ndarray, " batch"]]:
    """The prediction and the label of every sequence to test; NaN where it is not tested."""
    found = {name: np.full(len(tested), np.nan) for name in ("prediction", "label")}
    if probe is not None:
        found["prediction"][tested], found["label"][tested] = probe.predict(x), y
    return found


def _cell(
    activations: Sequence[Sequence[Tensor]],
    values: Sequence[Tensor],
    shuffles: Sequence[Sequence[Tensor]],
    mask: Sequence[Tensor],
    column: slice,
    penalty: float,
    per_prompt: bool,
) -> dict[str, Any]:
    """The scores of one site and position; the first of the models is the one in question."""
    x = [[rows.astype(float) for rows in _rows(one, mask, column)] for one in activations]
    y = _rows(values, mask, column)
    main = "r2" if is_number(y[0]) else "accuracy"
    names = ("r2",) if is_number(y[0]) else ("accuracy", "chance", "balanced_accuracy", "information")
    probe = _fitted(x[0], y, penalty)
    found = {} if probe is None else probe_scores(probe, x[0][1], y[1], y[0])
    shuffled = [_scored(x[0], _rows(labels, mask, column), penalty).get(main, math.nan) for labels in shuffles]
    return {
        **{name: found.get(name, math.nan) for name in names},
        "n_fit": len(y[0]),
        "n_test": len(y[1]),
        "shuffled": shuffled,
        "control_score": [_scored(other, y, penalty).get(main, math.nan) for other in x[1:]],
        **(_readings(probe, x[0][1], y[1], to_numpy(mask[1][:, column].any(1))) if per_prompt else {}),
    }


EXTRA = {"shuffled": ("draw",), "control_score": ("control",), "prediction": ("prompt",), "label": ("prompt",)}
"""Dimensions of a cell's numbers."""


def _dataset(
    cells: Sequence[Mapping[str, Any]], sites: Sequence[Site], pos: Sequence[int] | None, controls: Sequence[str]
) -> xr.Dataset:
    dims, shape = (("site",), (len(sites),)) if pos is None else (("site", "pos"), (len(sites), len(pos)))
    arrays = {}
    for name in cells[0]:
        values = np.array([cell[name] for cell in cells])
        extra = EXTRA.get(name, ())
        values = np.moveaxis(values.reshape(*shape, *values.shape[1:]), -1, 0) if extra else values.reshape(shape)
        arrays[name] = ((*extra, *dims), values)
    against = np.concatenate((arrays["shuffled"][1].mean(0, keepdims=True), arrays["control_score"][1]))
    score = arrays["r2" if "r2" in arrays else "accuracy"][1]
    coords = {
        "site": [str(site) for site in sites],
        "control": np.array(controls, dtype=str),
        "against": ["shuffled", *controls],
        **({} if pos is None else {"pos": list(pos)}),
    }
    return xr.Dataset({**arrays, "selectivity": (("against", *dims), score - against)}, coords=coords)
