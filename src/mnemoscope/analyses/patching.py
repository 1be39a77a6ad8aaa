"""Activation patching and path patching: what carries the difference between two prompts, exactly, one at a time.

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

*Path patching* changes one summand of a part's input: the reader sees what the writer wrote on the other prompt, every
other reader sees what it wrote on this one. The *total* effect of an edge is what the reader's changed output does by
every way to the logits, the *direct* effect what it does to the logits by itself, while every other part still reads
what it wrote before. Wang et al. 2022, "Interpretability in the wild"; Goldowsky-Dill et al. 2023, "Localizing model
behavior with path patching". With one edge at a time the total effect under noising is what EAP estimates, and what
ACDC and auto-circuit measure. Wang et al. also let MLPs between writer and reader pass the change on: `between="mlps"`
gives their numbers. Frozen attention or normalisation answers another question: what the edge would do if it could not
move patterns, or the scale of the stream. Along a *path* the first edge carries its writer's output on the other
prompt. The later ones carry what their writers then write, and all other edges what they carried before. Chains of
parts that need each other look as if neither counted.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, get_args

import xarray as xr

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import Metric, metrics_for
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import LOGITS, Edge, Kind, edge_coordinates
from mnemoscope.engine.budget import default_max_bytes
from mnemoscope.interventions.cells import SweepMethod, grid, sweep
from mnemoscope.interventions.edge_states import FrozenPart, sweep_states
from mnemoscope.interventions.feature_parts import refuse_features
from mnemoscope.interventions.graph import (
    EdgeState,
    Embeddings,
    chosen_edges,
    edge_patch_states,
    parts_of_reader,
    tabulate_states,
)
from mnemoscope.interventions.measurement import (
    DIRECTIONS,
    Direction,
    Plan,
    SweepQuestion,
    SweepResult,
    measure_sweep,
    weight_processing,
)
from mnemoscope.interventions.streams import plan_edges

MIN_ERRORS = 2.0
"""Standard errors that the mean difference between clean and corrupted must exceed to be more than noise."""
MIN_DEVIATIONS = 1.0
"""Standard deviations over prompts that it must exceed too: of 24 untrained models on 512 prompts 7 in 8 pass the
first bound, because answer and foil stand in the prompts, and none the second."""
MIN_DIFFERENCE = 1e-3
"""Difference between clean and corrupted, in the metric's unit, at and below which nothing is divided by it."""


@check_arguments
def patch(
    model: ModelLike,
    pairs: PromptPairs,
    *,
    kind: Kind,
    over: Sequence[str],
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    only: Mapping[str, Sequence[int]] | None = None,
    max_bytes: int | None = None,
    method: SweepMethod = "auto",
    seed: int = 0,
) -> xr.Dataset:
    """Patch an activation cell by cell.

    Args:
        model: A run, a subject or any hooked model; hooks that are on it stay and act.
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

    >>> values = ms.patch(model, pairs, kind="z", over=("layer", "head"))
    >>> ms.analyses.effects(values).ratio.dims
    ('direction', 'metric', 'layer', 'head')
    """
    model = resolve_model(model)
    question = sweep_question(model, pairs, metrics, directions, max_bytes, seed)
    cells = grid(model, kind, over, n_pos=question.n_pos, only=only)
    swept = sweep(question, cells, method=method)
    done = f"{kind} of one run in place of that of the other"
    return label_sweep(question, swept, cells.by_axis, intervention=done)


def sweep_question(
    model: HookedModel,
    pairs: PromptPairs,
    metrics: Sequence[Metric] | None,
    directions: Sequence[Direction],
    max_bytes: int | None,
    seed: int,
) -> SweepQuestion:
    """The question of a sweep over pairs; arguments as for `patch`, and InputError for those that do not fit."""
    metrics = metrics_for(vectors=pairs.clean.has_vectors)[:1] if metrics is None else metrics
    budget = default_max_bytes(model) if max_bytes is None else max_bytes
    question = SweepQuestion(
        model=model, pairs=pairs, metrics=metrics, directions=directions, max_bytes=budget, seed=seed
    )
    check_fits(model, pairs.clean, pairs.corrupted, vectors=True)
    return question


def label_sweep(
    question: SweepQuestion, swept: SweepResult, axes: Mapping[str, Sequence[int] | Sequence[str]], *, intervention: str
) -> xr.Dataset:
    """The measurements of a sweep, as `patch` returns them; cells are in the order of the axes, the last fastest."""
    pairs, metrics = question.pairs, question.metrics
    value = swept.value.unflatten(2, [len(labels) for labels in axes.values()]) if axes else swept.value[:, :, 0]
    return xr.Dataset(
        {
            "value": (("direction", "metric", *axes, "prompt"), to_numpy(value)),
            "clean": (("metric", "prompt"), to_numpy(swept.clean)),
            "corrupted": (("metric", "prompt"), to_numpy(swept.corrupted)),
        },
        coords={
            "direction": list(question.directions),
            "metric": [metric.name for metric in metrics],
            "unit": ("metric", [metric.unit for metric in metrics]),
            "higher_is": ("metric", [metric.higher_is for metric in metrics]),
            **pairs.clean.prompt_labels(),
            **{axis: list(labels) for axis, labels in axes.items()},
            **pairs.clean.labels(**{axis: axes[axis] for axis in ("pos", "query", "key") if axis in axes}),
        },
        attrs={
            "intervention": intervention,
            "pairs": pairs.name,
            "n": len(pairs),
            "method": swept.method,
            "weights": weight_processing(question.model),
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

    >>> values = ms.patch(model, pairs, kind="resid_pre", over=("layer", "pos"))
    >>> ms.analyses.effects(values).ratio.sel(metric="logit_diff").dims
    ('direction', 'layer', 'pos')
    """
    difference = result.clean - result.corrupted
    mean, error, clear, noise = _signal(difference)
    if refuse and not clear.any():
        raise InputError(
            "no metric tells clean from corrupted prompts, so that there is no difference for a patch to carry "
            f"({noise}); take pairs whose clean side the model answers"
        )
    change, dims = moved(result), result.value.dims
    ratio = change.mean("prompt", skipna=False) / mean.where(clear)
    return xr.Dataset(
        {
            "effect": (change / difference.where(clear & (abs(difference) > MIN_DIFFERENCE))).transpose(*dims),
            "ratio": ratio.transpose(*[dim for dim in dims if dim != "prompt"]),
            "difference": difference,
            "error": error,
        },
        attrs={**result.attrs, "noise": noise, "unit": "share of the difference between clean and corrupted"},
    )


def moved(result: xr.Dataset) -> xr.DataArray:
    """The effect of every cell on every prompt, in the metric's unit: what noising takes, or denoising brings back."""
    return xr.where(result.direction == "noising", result.clean - result.value, result.value - result.corrupted)


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


Effect = Literal["total", "direct"]
Between = Literal["nothing", "mlps"]


@check_arguments
def patch_edges(
    model: ModelLike,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    effect: Effect = "total",
    between: Between = "nothing",
    freeze: Collection[FrozenPart] = (),
    max_bytes: int | None = None,
    method: SweepMethod = "auto",
    seed: int = 0,
) -> xr.Dataset:
    """Patch edges one at a time.

    The model is a HookedTransformer whose parts add up in the residual stream. `pairs`, `metrics`, `directions`,
    `max_bytes` and `seed` are as for `patch`, and so is `method`: `stream` also needs nothing frozen or in between.
    `chosen` are the edges, each everywhere or at its positions only; None: every edge of the model, with token and
    positional embeddings as one writer (`embeddings="together"`) or two (`apart`). `effect` is `total`, all that
    follows from the reader's change, or `direct`, what it does to the logits by itself. With `between="mlps"` MLPs
    between writer and reader see the other output too, and what they then write goes to the reader alone. `freeze`:
    `attention` keeps all patterns of the unchanged run, `layer_norm` the scales of all normalisations.

    Returns:
        `value` over (direction, metric, edge, prompt), `clean` and `corrupted` over (metric, prompt), as
        `patch` gives them; `writer`, `reader` and `through` along `edge`.

    Raises:
        InputError: The model has no such edge or no edges that can be told apart, a metric measures no prediction, or
            the budget is too small.

    >>> values = ms.patch_edges(model, pairs)
    >>> print(values.sizes["edge"], "edges, the first:", values.edge.values[0])
    13 edges, the first: input → L0H0 q
    """
    model = resolve_model(model)
    one_of("effect", effect, get_args(Effect))
    one_of("between", between, get_args(Between))
    one_of("method", method, get_args(SweepMethod))
    edges = chosen_edges(model, chosen, embeddings=embeddings)
    question = sweep_question(model, pairs, metrics, directions, max_bytes, seed)
    direct = effect == "direct"
    if method == "hooks":
        how = "asked for"
    elif freeze or between == "mlps":
        how = "parts are frozen" if freeze else "MLPs pass the patch on"
    else:
        how = plan_edges(question, edges, direct=direct)
    if isinstance(how, Plan):
        swept = measure_sweep(question, len(edges), how)
    elif method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' here, because {how}; got 'stream'")
    else:
        refuse_features(model, how)
        cells = [edge_patch_states(model, edge, direct=direct, through_mlps=between == "mlps") for edge in edges]
        every, carried = tabulate_states(
            model, cells, EdgeState.FROZEN if direct else EdgeState.LIVE, question.max_bytes
        )
        swept = replace(sweep_states(question, every, carried, freeze=freeze), method=f"hooks ({how})")
    result = label_edge_sweep(
        question, swept, edges, intervention="an edge carries what its writer wrote in the other run"
    )
    return result.assign_attrs(effect=effect, between=between, frozen=" and ".join(freeze) or "nothing")


def label_edge_sweep(
    question: SweepQuestion, swept: SweepResult, edges: Sequence[Edge], *, intervention: str
) -> xr.Dataset:
    """The measurements of a sweep over edges, as `patch_edges` returns them."""
    names = edge_coordinates(edges)
    return label_sweep(question, swept, {"edge": names["edge"][1]}, intervention=intervention).assign_coords(names)


@check_arguments
def patch_paths(
    model: ModelLike,
    pairs: PromptPairs,
    paths: Mapping[str, Sequence[Edge]],
    *,
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    freeze: Collection[FrozenPart] = (),
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Patch the first edge of a path, and let the change travel along the path only.

    `paths` maps names to sequences of edges. Each edge starts where the one before has ended, and the last one leads to
    the logits. The other arguments and errors are those of `patch_edges`; a path with a gap or another end is refused
    too.

    Returns what `patch_edges` does, along `path`.

    >>> direct = {"L0H1 direct": [ms.Edge(writer=ms.Site(kind="z", layer=0, head=1))]}
    >>> ms.analyses.patch_paths(model, pairs, direct).value.dims
    ('direction', 'metric', 'path', 'prompt')
    """
    model = resolve_model(model)
    if not paths:
        raise InputError("paths must name at least one; got none")
    for name, path in paths.items():
        goes_on = all(later.writer in parts_of_reader(model, edge.reader) for edge, later in pairwise(path))
        if not path or path[-1].reader != LOGITS or not goes_on:
            raise InputError(
                f"every edge of a path starts where the one before has ended, and the last one leads to the logits; "
                f"path {name} is {', '.join(map(str, path)) or 'empty'}"
            )
    question = sweep_question(model, pairs, metrics, directions, max_bytes, seed)
    cells = [{**dict.fromkeys(path[1:], EdgeState.LIVE), path[0]: EdgeState.PATCHED} for path in paths.values()]
    every, carried = tabulate_states(model, cells, EdgeState.FROZEN, question.max_bytes)
    swept = sweep_states(question, every, carried, freeze=freeze)
    done = "the first edge of a path carries what its writer wrote in the other run"
    result = label_sweep(question, swept, {"path": list(paths)}, intervention=done)
    return result.assign_attrs(frozen=" and ".join(freeze) or "nothing")
