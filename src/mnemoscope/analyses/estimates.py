"""First-order estimates of patching, for all activations or edges at once, and their distance from the exact sweep.

To first order the metric moves under a patch by

    Σ over the entries of a cell of (a_other - a_base) · ∂metric/∂a                            for activations,
    Σ over positions of (w_other - w_base) · ∂metric / ∂(input of the reader)                   for edges,

where w is the writer's output: a few passes give every cell. *Attribution patching* and *EAP* take the gradient in the
base run, the clean one for noising and the corrupted one for denoising. Nanda 2023, "Attribution patching: activation
patching at industrial scale"; Syed, Rager & Conmy 2023, "Attribution patching outperforms automated circuit discovery".
Through a saturated softmax the gradient of q and k is about zero although another q or k would move the attention.
`attention="recomputed"` computes the attention that the patched q or k gives and takes the first order from there on:
the correction of queries and keys of AtP*, Kramár et al. 2024, "AtP*: an efficient and scalable method for localizing
LLM behaviour to components" (without its second correction, GradDrop).

*EAP-IG* averages the gradient over m points between the runs: the k-th is taken in the run that starts from the
embeddings x_corrupted + a_k (x_clean - x_corrupted). Hanna, Pezzelle & Belinkov 2024, "Have faith in faithfulness:
going beyond circuit overlap when finding model mechanisms"; integrated gradients: Sundararajan, Taly & Yan 2017,
"Axiomatic attribution for deep networks". The points a_k are by `rule` k/m with k from 1 to m (`right`: the paper's
sum), k/m with k from 0 to m - 1 (`left`: the authors' package) or (k - 1/2)/m (`middle`, which converges fastest). In
the limit of many points the edges that leave the input add up to the whole difference between clean and corrupted
(completeness); no other cut through the graph has to. `along="activations"` is the package's second variant (with
`rule="right"`): in turn the embeddings, the heads of a layer and an MLP's output are moved from one run to the other
while the input stays as it is, and every edge gets the mean over all of these runs. (Without learned positions the
package loses the gradient of the first layer's heads in the runs that move the embeddings; here it counts.)

An estimate is a sum over positions for each prompt, positive where the patch would raise the metric. EAP-IG's package
and auto-circuit's mask gradients (`mask_val=0`) take minus the metric, so that their scores are `clean - value` under
noising here. auto-circuit adds up the means of batches.

Estimates show where a small step towards the other prompt would move the metric; EAP-IG also shows edges whose effect
begins somewhere on the way. Neither shows what the whole step does. Through a saturated softmax or a closed ReLU the
gradient is about zero, and a divergence from the clean run has none there at all. `approximation` says how far off
they are on a given model; look at the overlap of the largest effects, since a correlation depends on a few of them, and
at the slope, which is below one where the gradient saturates.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
import xarray as xr
from einops import reduce
from jaxtyping import Float
from scipy.stats import rankdata
from torch import Tensor

from mnemoscope.analyses.patching import label_edge_sweep, label_sweep, moved, sweep_question
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Inputs
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.site import ATTENTION, BY_NEURON, EMBEDDINGS, Edge, Kind, Site
from mnemoscope.interventions.cells import AXES, Grid, grid
from mnemoscope.interventions.edge_estimates import START, InterpolationPoint, estimate_edges
from mnemoscope.interventions.gradients import (
    activation_gradients,
    check_gradient,
    metric_sums,
    n_prompts_to_trace,
    trace_run,
)
from mnemoscope.interventions.graph import Embeddings, chosen_edges
from mnemoscope.interventions.measurement import (
    DIRECTIONS,
    CellMetrics,
    Chunk,
    Direction,
    Plan,
    SweepQuestion,
    measure_sweep,
)
from mnemoscope.interventions.reading import pick_nothing, unembed_only
from mnemoscope.interventions.recordings import RecordedRun, check_no_nan
from mnemoscope.interventions.writing import bypassed_layers, check_written

AttentionMethod = Literal["linear", "recomputed"]


@check_arguments
def estimate(
    model: ModelLike,
    pairs: PromptPairs,
    *,
    kind: Kind,
    over: Sequence[str],
    attention: AttentionMethod = "linear",
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    only: Mapping[str, Sequence[int]] | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `patch` measures; its arguments and errors hold here too.

    For q and k `attention` is `linear`, as everything else, or `recomputed`. For each direction that costs one forward
    pass, or for k one for each position that is swept. Raises InputError also where a metric has no gradient, or
    attention is to be recomputed for another kind. Returns what `patch` does; `value` is the metric of the unpatched
    run plus the estimate, so that `effects` applies.

    >>> ms.analyses.estimate(model, pairs, kind="z", over=("layer", "head")).value.dims
    ('direction', 'metric', 'layer', 'head', 'prompt')
    """
    model = resolve_model(model)
    question = sweep_question(model, pairs, metrics, directions, max_bytes, seed)
    one_of("attention", attention, get_args(AttentionMethod))
    if attention == "recomputed" and kind not in ("q", "k"):
        raise InputError(f"attention can be recomputed where q or k is patched; leave it linear for {kind}")
    cells = grid(model, kind, over, n_pos=question.n_pos, only=only)
    for written in (cells.kind,) if attention == "linear" else (cells.kind, "pattern"):
        check_written(model, written, cells.layers)
    how = _Estimate(question, cells, attention)
    n_prompts = n_prompts_to_trace(question, n_runs=2)
    plan = Plan(method="gradients", n_prompts=n_prompts, run=how.run, measure_chunk=how.answers)
    done = f"first-order estimate of {kind} of one run in place of that of the other"
    result = label_sweep(question, measure_sweep(question, len(cells.cells), plan), cells.by_axis, intervention=done)
    return result.assign_attrs(gradient="in the unpatched run", attention=attention)


class _Estimate:
    """The estimate of every cell from both traced runs of some prompts."""

    def __init__(self, question: SweepQuestion, cells: Grid, attention: AttentionMethod):
        self.model, self.read, self.cells, self.attention = question.model, question.read, cells, attention
        self.own = [cells.hook(layer) for layer in cells.layers]
        self.beside = {
            name: Site(kind="resid_post", layer=layer).hook
            for layer, name in zip(cells.layers, self.own, strict=True)
            if cells.kind == "resid_mid" and bypassed_layers(self.model, [layer])
        }
        heads = cells.kind in ("q", "k")
        self.patterns = [Site(kind="pattern", layer=layer).hook for layer in cells.layers] if heads else []

    def run(self, tokens: Inputs) -> RecordedRun:
        """A forward pass without patches."""
        run = trace_run(self.model, tokens, [*self.own, *self.beside.values(), *self.patterns], self.read)
        check_no_nan(run.logits)
        return run

    def answers(self, chunk: Chunk[RecordedRun]) -> Iterator[CellMetrics]:
        """The metric of the unpatched run plus the estimate."""
        names = self.own if self.attention == "linear" else self.patterns
        found = [self._gradients(chunk.base, total, names) for total in metric_sums(chunk.reader, chunk.base)]
        terms = self._linear(chunk, found) if self.attention == "linear" else self._recomputed(chunk, found)
        for metric, of_metric in zip(chunk.reader.metrics, terms, strict=True):
            check_gradient(of_metric, metric.name)
        return chunk.add_estimate(torch.stack([_summed(self.cells, of_metric) for of_metric in terms]))

    def _gradients(self, run: RecordedRun, total: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Gradients at some hook points; the stream that goes past them counts too."""
        found = activation_gradients(total, [run[name] for name in (*names, *self.beside.values())])
        past = dict(zip(self.beside, found[len(names) :], strict=True))
        return [past.get(name, 0) + gradient for name, gradient in zip(names, found, strict=False)]

    def _linear(
        self, chunk: Chunk[RecordedRun], found: Sequence[Sequence[Tensor]]
    ) -> Float[Tensor, "metric layer prompt ..."]:
        """Differences times gradients: one number for each entry that cells can divide."""
        base, other = chunk.base, chunk.source
        # masked scores are -inf in both runs
        differs = [torch.where(other[n] == base[n], 0, other[n] - base[n]).detach() for n in self.own]
        each = ([d * g for d, g in zip(differs, of_metric, strict=True)] for of_metric in found)
        terms = torch.stack([torch.stack(of_metric) for of_metric in each])
        return terms if self.cells.kind in (*ATTENTION, *BY_NEURON) else terms.sum(-1)

    def _recomputed(
        self, chunk: Chunk[RecordedRun], found: Sequence[Sequence[Tensor]]
    ) -> Float[Tensor, "metric layer prompt pos head"]:
        """Changes of attention times its gradient. A query moves its own row, a key a column of later rows."""
        base, own = chunk.base, chunk.base[self.own[0]]
        terms = own.new_zeros(len(found), len(self.own), *own.shape[:3])
        for pos in self.cells.by_axis.get("pos", [None]) if self.cells.kind == "k" else [None]:
            patterns = self._changed_attention(chunk, pos)
            for metric, of_metric in enumerate(found):
                for layer, gradient in enumerate(of_metric):
                    moved = (patterns[layer] - base[self.patterns[layer]].detach()) * gradient
                    if self.cells.kind == "q":
                        terms[metric, layer] = reduce(moved, "prompt head query key -> prompt query head", "sum")
                    else:  # heads may share keys
                        shape = "prompt (head shared) query key -> prompt head"
                        terms[metric, layer, :, pos or 0] = reduce(moved, shape, "sum", head=own.shape[2])
        return terms

    def _changed_attention(
        self, chunk: Chunk[RecordedRun], pos: int | None
    ) -> list[Float[Tensor, "prompt head_index query key"]]:
        """Attention with q or k of the other run, everywhere or at one position, in each layer by itself."""
        base, other, found = chunk.base, chunk.source, {}
        at = slice(None) if pos is None else pos

        def put(activation: Tensor, hook: Any, *, name: str) -> Tensor:
            activation = activation.clone()
            activation[:, at] = other[name][:, at]
            return activation

        def see(pattern: Tensor, hook: Any, *, name: str) -> Tensor:
            found[name] = pattern
            return base[name]

        hooks = [(name, partial(put, name=name)) for name in self.own]
        hooks += [(name, partial(see, name=name)) for name in self.patterns]
        with unembed_only(self.model, pick_nothing):
            self.model.run_with_hooks(chunk.batch.inputs, fwd_hooks=hooks)
        return [found[name] for name in self.patterns]


def _summed(cells: Grid, terms: Float[Tensor, "layer prompt ..."]) -> Float[Tensor, "cell prompt"]:
    """The sum of the terms of each cell."""
    axes = AXES[cells.kind]
    for axis, labels in zip(cells.axes, cells.labels, strict=True):
        if axis != "layer":  # others are not there
            terms = terms.index_select(2 + axes.index(axis), torch.tensor(labels, device=terms.device))
    return reduce(terms, f"layer prompt {' '.join(axes)} -> ({' '.join(cells.axes)}) prompt", "sum")


Rule = Literal["left", "right", "middle"]
Along = Literal["inputs", "activations"]

STEPS = 5
"""Points, as published."""
_OFFSETS: dict[Rule, float] = {"left": 0.0, "middle": 0.5, "right": 1.0}


@check_arguments
def attribute_edges(
    model: ModelLike,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `patch_edges` measures, by the gradient in the unpatched run.

    Arguments and errors are those of `patch_edges`. For an edge with positions only the terms there count. Metrics need
    a gradient; those without one are refused. Returns what `patch_edges` does; `value` is the metric of the unpatched
    run plus the estimate.

    >>> ms.analyses.attribute_edges(model, pairs).value.dims
    ('direction', 'metric', 'edge', 'prompt')
    """
    model = resolve_model(model)
    question = sweep_question(model, pairs, metrics, directions, max_bytes, seed)
    paths = {direction: [{START: float(direction == "noising")}] for direction in directions}
    found = _estimated(question, chosen_edges(model, chosen, embeddings=embeddings), paths)
    return found.assign_attrs(gradient="in the unpatched run")


@check_arguments
def integrate_edges(
    model: ModelLike,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    steps: int = STEPS,
    rule: Rule = "left",
    along: Along = "inputs",
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `patch_edges` measures, by the gradient averaged between the runs.

    The arguments are those of `attribute_edges`, and three more. `steps` is the number of points, at least one, for
    each activation where these are moved. `rule` places each point in its step: at the corrupted end (`left`), at the
    clean end (`right`) or in the `middle`. `along` says what is moved: the input embeddings (`inputs`), or one
    activation after the other.

    Returns what `attribute_edges` does. For every edge and moved inputs also `unexplained` over (direction, metric,
    prompt): by how much the edges that leave the input miss the difference between the runs. Large: take more steps.

    >>> ms.analyses.integrate_edges(model, pairs, steps=2).value.dims
    ('direction', 'metric', 'edge', 'prompt')
    """
    model = resolve_model(model)
    one_of("rule", rule, get_args(Rule))
    one_of("along", along, get_args(Along))
    in_range("steps", steps, 1, float("inf"))
    shares = [(k + _OFFSETS[rule]) / steps for k in range(steps)]
    question = sweep_question(model, pairs, metrics, directions, max_bytes, seed)
    paths = {direction: _points(model, shares, along, direction) for direction in directions}
    result = _estimated(question, chosen_edges(model, chosen, embeddings=embeddings), paths)
    if chosen is None and along == "inputs":
        result = result.assign(unexplained=_unexplained(result))
    return result.assign_attrs(gradient=f"averaged along {along}", steps=steps, rule=rule)


def _estimated(
    question: SweepQuestion, edges: Sequence[Edge], paths: Mapping[str, Sequence[InterpolationPoint]]
) -> xr.Dataset:
    done = "first-order estimate of an edge that carries what its writer wrote in the other run"
    return label_edge_sweep(question, estimate_edges(question, edges, paths), edges, intervention=done)


def _unexplained(result: xr.Dataset) -> xr.DataArray:
    """The whole difference between the runs minus the sum over the edges that leave the input."""
    noising = result.direction == "noising"
    base = xr.where(noising, result.clean, result.corrupted)
    from_input = result.writer.isin(["input", *EMBEDDINGS])
    explained = (result.value - base).sel(edge=from_input).sum("edge")
    return xr.where(noising, 1, -1) * (result.corrupted - result.clean) - explained


def _points(
    model: HookedModel, shares: Sequence[float], along: Along, direction: Direction
) -> list[InterpolationPoint]:
    """Shares of the clean run at every point."""
    if along == "inputs":
        return [{START: share} for share in shares]
    base = float(direction == "noising")
    ends = ("attn.hook_z",) if model.cfg.attn_only else ("attn.hook_z", "hook_mlp_out")
    moved = [START, *(f"blocks.{layer}.{end}" for layer in range(model.cfg.n_layers) for end in ends)]
    return [{START: base, place: share} for place in moved for share in shares]


TOP = (3, 5, 10, 20)
SHARE = 0.05
"""Share of the largest exact effect: smaller ones have no sign worth agreeing on."""
NEGLIGIBLE = 1e-5
"""Share of the largest exact effect: rounding alone leaves as much of no effect."""


@check_arguments
def approximation(
    estimate: xr.Dataset, exact: xr.Dataset, *, top: Sequence[int] = TOP, share: float = SHARE
) -> xr.Dataset:
    """Compare an estimate with the exact sweep.

    `estimate` comes from `attribute_edges`, `integrate_edges` or `estimate`; `exact` from `patch_edges` or
    `patch`, over the same cells and prompts. `top` are numbers of largest effects, by size without sign, that are
    looked for. Signs are compared in cells whose exact effect is at least `share` of the largest one. Raises InputError
    where the results are over different cells, prompts, metrics or directions, or have one cell only.

    Returns:
        Over (direction, metric), NaN where it is not defined: `pearson`, `spearman` (correlations over cells; NaN
        where one side is constant); `sign_agreement` (share of the cells above the bound with the right sign);
        `n_above` (the number of these cells); `slope` (of the estimate on the exact effect, through the origin),
        `mean_absolute_error` (in the metric's unit) and `relative_error` (the same over the mean exact size). Over
        (direction, metric, top) too: `precision` (share of the n largest estimates that are among the n truly largest
        effects; NaN where fewer than n cells have an effect) and `jaccard` (intersection over union of these sets).

    >>> exact, fast = ms.patch_edges(model, pairs), ms.analyses.attribute_edges(model, pairs)
    >>> ms.analyses.approximation(fast, exact).pearson.dims
    ('direction', 'metric')
    """
    in_range("share", share, 0, 1)
    for n in top:
        in_range("a number in top", n, 1, float("inf"))
    for name in ("direction", "metric", "prompt", *exact.value.dims):
        same = name in estimate.value.dims and estimate[name].equals(exact[name])
        if not same:
            raise InputError(f"both results must be over the same {name}; make them with the same arguments")
    if not _cell_dims(exact):
        raise InputError("both results must have several cells; sweep an axis")
    effects = [_mean_moved(result).stack(cell=_cell_dims(exact)) for result in (estimate, exact)]
    figures, precision = xr.apply_ufunc(
        lambda guess, truth: (_figures(guess, truth, share), np.array([_precision(guess, truth, n) for n in top])),
        *effects,
        input_core_dims=[["cell"], ["cell"]],
        output_core_dims=[["figure"], ["top"]],
        vectorize=True,
    )
    precision = precision.assign_coords(top=list(top))
    return xr.Dataset(
        {
            **{name: figures.isel(figure=i) for i, name in enumerate(_NAMES)},
            "precision": precision,
            "jaccard": precision / (2 - precision),
        },
        attrs={
            "estimate": f"gradient {estimate.attrs.get('gradient', '')}".strip(),
            "exact": exact.attrs.get("intervention", ""),
            "pairs": exact.attrs.get("pairs", ""),
            "n": exact.sizes["prompt"],
            "n_cells": effects[1].sizes["cell"],
            "share": share,
        },
    )


_NAMES = ("pearson", "spearman", "sign_agreement", "n_above", "slope", "mean_absolute_error", "relative_error")


def _cell_dims(result: xr.Dataset) -> list[str]:
    return [str(dim) for dim in result.value.dims if dim not in ("direction", "metric", "prompt")]


def _mean_moved(result: xr.Dataset) -> xr.DataArray:
    """Effects in the metric's unit, averaged over prompts."""
    return moved(result).mean("prompt", skipna=False)


def _figures(guess: np.ndarray, truth: np.ndarray, share: float) -> np.ndarray:
    varied = all(np.ptp(effects) > NEGLIGIBLE * abs(effects).max() for effects in (guess, truth))
    above = (abs(truth) >= share * abs(truth).max()) & (truth != 0)
    error, size, square = abs(guess - truth).mean(), abs(truth).mean(), (truth**2).sum()
    return np.array(
        [
            np.corrcoef(guess, truth)[0, 1] if varied else np.nan,
            np.corrcoef(rankdata(guess), rankdata(truth))[0, 1] if varied else np.nan,
            (np.sign(guess) == np.sign(truth))[above].mean() if above.any() else np.nan,
            above.sum(),
            (guess * truth).sum() / square if square else np.nan,
            error,
            error / size if size else np.nan,
        ]
    )


def _precision(guess: np.ndarray, truth: np.ndarray, n: int) -> float:
    """Share of the n largest estimates whose exact effect is no smaller than the n-th largest one."""
    sizes = np.sort(abs(truth))[::-1]
    if len(sizes) < n or sizes[n - 1] <= NEGLIGIBLE * sizes[0]:
        return np.nan
    found = np.argsort(-abs(guess), kind="stable")[:n]
    return (abs(truth)[found] >= (1 - NEGLIGIBLE) * sizes[n - 1]).mean()
