"""Activation patching: the activations that carry the difference between two prompts.

An activation of one run is replaced by the same one of another run, and the metric is read again. *Noising* puts
corrupted activations into the clean run and asks what is needed; *denoising* puts clean ones into the corrupted run and
asks what suffices. With c and x the values on the clean and the corrupted prompt, and p the value under the patch:

    necessity = (c - p) / (c - x) for noising,    sufficiency = (p - x) / (c - x) for denoising,

0 where the patch does nothing and 1 where it does all that exchanging the whole prompt does. Vig et al. 2020,
"Investigating gender bias in language models using causal mediation analysis"; Meng et al. 2022, "Locating and editing
factual associations in GPT"; on metrics and directions Zhang & Nanda 2023, "Towards best practices of activation
patching in language models".

It shows that an activation carries something in which the two prompts differ and that the answer depends on, given the
rest of the model as it is. It does not show what the prompts have in common, which the patch leaves alone, nor how the
activation is used. Parts that can stand in for each other look unneeded under noising though each suffices; parts that
only work together look insufficient though each is needed. Effects of cells do not add up.
"""

import math
from collections.abc import Mapping, Sequence

import xarray as xr

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import Metric, metrics_of
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Kind
from mnemoscope.engine.budget import roomy
from mnemoscope.interventions.patching.grid import grid
from mnemoscope.interventions.patching.measuring import DIRECTIONS, Direction, Question, SweepResult
from mnemoscope.interventions.patching.sweep import Method, sweep

MIN_ERRORS = 2.0
"""Standard errors that the mean difference between clean and corrupted must exceed to be more than noise."""
MIN_DEVIATIONS = 1.0
"""Standard deviations over prompts that it must exceed too: of 24 untrained models on 512 prompts 7 in 8 pass the
first bound, because answer and foil stand in the prompts, and none the second."""
MIN_DIFFERENCE = 1e-3
"""Difference between clean and corrupted, in the metric's unit, at and below which nothing is divided by it."""


def patch(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    kind: Kind,
    over: Sequence[str],
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    only: Mapping[str, Sequence[int]] | None = None,
    max_bytes: int | None = None,
    method: Method = "auto",
    seed: int = 0,
) -> xr.Dataset:
    """Patch an activation cell by cell.

    Args:
        model: Any hooked model; hooks that are on it stay and act.
        pairs: Clean and corrupted prompts; metrics read at their scored positions.
        kind: The activation. `resid_pre`, `resid_mid`, `resid_post`, `attn_out`, `mlp_out`: axes layer, pos; `q`, `k`,
            `v`, `z`, `result` (the same as `z`, from which it follows): layer, pos, head; `pattern`, `scores`: layer,
            head, query, key; `pre`, `post` (of the MLP): layer, pos, neuron; `embed`, `pos_embed`: pos.
        over: The axes to sweep, from these. Along the others the whole activation is patched at once.
        metrics: The value of a prompt is the mean over its scored positions. None: the logit difference; for
            vectors the difference of errors.
        directions: `noising`, `denoising`, or both.
        only: The numbers to visit along a swept axis; None: all.
        max_bytes: Bound on what is allocated on the way, copies of weights included and the result excepted. It does
            not change the result. None: 256 MiB besides what copies of weights take.
        method: `stream` continues from the changed residual stream, much faster, for causal models of the engine
            without hooks; `hooks` works for every model; `auto` takes the first where it can. The results are the same.
        seed: For the check that metrics do not move with a constant added to the logits.

    Returns:
        `value` over (direction, metric, the axes of `over`, prompt), `clean` and `corrupted` over (metric, prompt).
        For prompts made of texts, positions have a coordinate with the token there (`pos_token`).

    Raises:
        InputError: The kind has no such axis, a metric measures no prediction, the budget is too small, the model is
            too small or has no such activation, or its logits hold NaN.
    """
    question = asked(model, pairs, metrics, directions, max_bytes, seed)
    cells = grid(model, kind, over, n_pos=question.n_pos, only=only)
    swept = sweep(question, cells, method=method)
    done = f"{kind} of one run in place of that of the other"
    return labelled(question, swept, cells.by_axis, intervention=done)


def asked(
    model: HookedModel,
    pairs: PromptPairs,
    metrics: Sequence[Metric] | None,
    directions: Sequence[Direction],
    max_bytes: int | None,
    seed: int,
) -> Question:
    """The question of a sweep over pairs; arguments as for `patch`.

    Raises InputError where a name is missing or occurs twice, or the model is too small for the prompts.
    """
    metrics = metrics_of(vectors=pairs.clean.has_vectors)[:1] if metrics is None else metrics
    budget = roomy(model) if max_bytes is None else max_bytes
    question = Question(model=model, pairs=pairs, metrics=metrics, directions=directions, max_bytes=budget, seed=seed)
    check_fits(model, pairs.clean, pairs.corrupted, vectors=True)
    return question


def labelled(
    question: Question, swept: SweepResult, axes: Mapping[str, Sequence[int] | Sequence[str]], *, intervention: str
) -> xr.Dataset:
    """The measurements of a sweep, as `patch` returns them.

    The sweep's cells are in the order of the axes, the last one running fastest; without axes there is one cell.
    `intervention` says in words what was done.
    """
    pairs, metrics = question.pairs, question.metrics
    folded = str(question.model.cfg.normalization_type).endswith("Pre")
    value = swept.value.unflatten(2, [len(labels) for labels in axes.values()]) if axes else swept.value[:, :, 0]
    return xr.Dataset(
        {
            "value": (("direction", "metric", *axes, "prompt"), value.numpy()),
            "clean": (("metric", "prompt"), swept.clean.numpy()),
            "corrupted": (("metric", "prompt"), swept.corrupted.numpy()),
        },
        coords={
            "direction": list(question.directions),
            "metric": [metric.name for metric in metrics],
            "unit": ("metric", [metric.unit for metric in metrics]),
            "higher_is": ("metric", [metric.higher_is for metric in metrics]),
            "prompt": range(len(pairs)),
            **{axis: list(labels) for axis, labels in axes.items()},
            **pairs.clean.labels(**{axis: axes[axis] for axis in ("pos", "query", "key") if axis in axes}),
        },
        attrs={
            "intervention": intervention,
            "pairs": pairs.name,
            "n": len(pairs),
            "method": swept.method,
            "weights": "LayerNorm folded" if folded else "unprocessed",
        },
    )


def effects(result: xr.Dataset, *, refuse: bool = True) -> xr.Dataset:
    """Necessity and sufficiency from what `patch` measured.

    A metric counts as noise, and its effects are NaN, unless its mean difference between clean and corrupted prompts is
    large enough. It must exceed `MIN_DIFFERENCE` and, where there are several prompts, `MIN_ERRORS` standard errors and
    `MIN_DEVIATIONS` standard deviations over prompts. The effect on a single prompt is NaN too if the prompt's own
    difference is at most `MIN_DIFFERENCE`. A divergence is never negative, so that it tells any two predictions apart:
    use another metric to see whether the model knows the answer.

    Where every metric is noise, `refuse` raises InputError: there is no difference to be explained. Without it all
    effects are NaN then, which suits many runs of which some have not learned the task.

    Returns:
        `effect` over (direction, metric, axes, prompt): necessity under `noising`, sufficiency under `denoising`.
        `ratio` without prompt: the ratio of the means over prompts, which no single small difference can blow up.
        `difference` over (metric, prompt): clean minus corrupted. `error` over metric: the standard error of its mean
        (NaN for one prompt). Attribute `noise`: the metrics that are noise, and why.
    """
    difference = result.clean - result.corrupted
    mean, error, clear, noise = _signal(difference)
    if refuse and not clear.any():
        raise InputError(
            "no metric tells clean from corrupted prompts, so that there is no difference for a patch to carry "
            f"({noise}); take pairs whose clean side the model answers"
        )
    moved = xr.where(result.direction == "noising", result.clean - result.value, result.value - result.corrupted)
    dims = result.value.dims
    ratio = moved.mean("prompt", skipna=False) / mean.where(clear)
    return xr.Dataset(
        {
            "effect": (moved / difference.where(clear & (abs(difference) > MIN_DIFFERENCE))).transpose(*dims),
            "ratio": ratio.transpose(*[dim for dim in dims if dim != "prompt"]),
            "difference": difference,
            "error": error,
        },
        attrs={**result.attrs, "noise": noise, "unit": "share of the difference between clean and corrupted"},
    )


def _signal(difference: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray, str]:
    """The mean difference of every metric, its standard error, True if it exceeds noise; in words those that do not."""
    n = difference.sizes["prompt"]
    mean = difference.mean("prompt", skipna=False)
    deviation = difference.std("prompt", skipna=False, ddof=1) if n > 1 else xr.full_like(mean, math.nan)
    bound = (max(MIN_ERRORS / math.sqrt(n), MIN_DEVIATIONS) * deviation).fillna(0).clip(min=MIN_DIFFERENCE)
    clear = abs(mean) > bound  # False where infinite values make the mean NaN
    noise = "; ".join(
        f"{name}: mean difference {float(mean.sel(metric=name)):.3g}, not above {float(bound.sel(metric=name)):.3g}"
        for name in clear.metric.values[~clear.values]
    )
    return mean, deviation / math.sqrt(n), clear, noise
