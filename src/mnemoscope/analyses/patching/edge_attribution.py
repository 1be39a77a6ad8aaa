"""Edge attribution patching: first-order estimates of the effect of patching each edge, from a few runs and gradients.

Path patching changes one edge at a time. To first order the metric moves by

    Σ over positions of (w_other - w_base) · ∂metric / ∂(input of the reader),

where w is the writer's output. One backward pass gives it for all edges.

*EAP* takes the gradient in the base run: the clean one for noising, the corrupted one for denoising. Syed, Rager &
Conmy 2023, "Attribution patching outperforms automated circuit discovery"; on nodes Nanda 2023, "Attribution
patching". There a saturated softmax or a metric at its optimum has no gradient. *EAP-IG* averages it over m points
between the runs: with x the input embeddings

    Σ over positions of (w_other - w_base) · 1/m Σ_k ∂metric / ∂(input of the reader),
    the k-th gradient in the run that starts from x_corrupted + a_k (x_clean - x_corrupted).

Hanna, Pezzelle & Belinkov 2024, "Have faith in faithfulness: going beyond circuit overlap when finding model
mechanisms"; integrated gradients: Sundararajan, Taly & Yan 2017, "Axiomatic attribution for deep networks". The points
a_k are by `rule` k/m with k from 1 to m (`right`: the paper's sum), k/m with k from 0 to m - 1 (`left`: the authors'
package) or (k - 1/2)/m (`middle`, which converges fastest). In the limit of many points the edges that leave the input
add up to the whole difference between clean and corrupted (completeness); no other cut through the graph has to.

`along="activations"` is the package's second variant (with `rule="right"`). In turn the embeddings, the heads of a
layer and an MLP's output are moved from one run to the other while the input stays as it is. Every edge gets the mean
over all of these runs. (Without learned positions the package loses the gradient of the first layer's heads in the runs
that move the embeddings; here it counts.) Where the inputs are moved the points do not depend on the direction, so that
noising and denoising get the same estimate with opposite signs.

An estimate is a sum over positions for each prompt, positive where the patch would raise the metric. EAP-IG's package
and auto-circuit's mask gradients (`mask_val=0`) take minus the metric, so that their scores are `clean - value` under
noising here. They treat prompts in another way: auto-circuit adds up the means of batches; EAP-IG divides by the number
of prompts whatever the metric has averaged already, so that with `mean=True` it does so twice.

EAP shows where a small step towards the other prompt would move the metric. EAP-IG is better: it also shows edges whose
effect begins somewhere on the way. Neither shows the effect of a patch. Through a saturated softmax or a closed ReLU
the gradient is about zero and EAP misses the edge (a divergence from the clean run has no gradient there at all).
Embeddings between two tokens are no prompts on which a model was trained. `approximation` says how far off they are.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import xarray as xr

from mnemoscope.analyses.patching.activations import asked
from mnemoscope.analyses.patching.edges import of_edges
from mnemoscope.core.errors import in_range, one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import EMBEDDINGS, Edge
from mnemoscope.interventions.edges.attributed import START, Point, attributed
from mnemoscope.interventions.edges.graph import Embeddings, chosen_edges
from mnemoscope.interventions.patching.measuring import DIRECTIONS, Direction, Question

Rule = Literal["left", "right", "middle"]
Along = Literal["inputs", "activations"]

STEPS = 5
"""Points, as published."""

_OFFSETS: dict[Rule, float] = {"left": 0.0, "middle": 0.5, "right": 1.0}


def attribute_edges(
    model: HookedModel,
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
    a gradient; those without one are refused.

    Returns:
        As `patch_edges`; `value` is the metric of the unpatched run plus the estimate.
    """
    question = asked(model, pairs, metrics, directions, max_bytes, seed)
    paths = {direction: [{START: float(direction == "noising")}] for direction in directions}
    return _estimated(question, chosen_edges(model, chosen, embeddings=embeddings), paths).assign_attrs(
        gradient="in the unpatched run"
    )


def integrate_edges(
    model: HookedModel,
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

    Returns:
        As `attribute_edges`. For every edge and moved inputs also `unexplained` over (direction, metric, prompt): by
        how much the edges that leave the input miss the whole difference between the runs. Large: take more steps.
    """
    one_of("rule", rule, get_args(Rule))
    one_of("along", along, get_args(Along))
    in_range("steps", steps, 1, float("inf"))
    shares = [(k + _OFFSETS[rule]) / steps for k in range(steps)]
    question = asked(model, pairs, metrics, directions, max_bytes, seed)
    paths = {direction: _points(model, shares, along, direction) for direction in directions}
    result = _estimated(question, chosen_edges(model, chosen, embeddings=embeddings), paths)
    if chosen is None and along == "inputs":
        result = result.assign(unexplained=_unexplained(result))
    return result.assign_attrs(gradient=f"averaged along {along}", steps=steps, rule=rule)


def _estimated(question: Question, edges: Sequence[Edge], paths: Mapping[str, Sequence[Point]]) -> xr.Dataset:
    """Estimates with gradients averaged over the points of a path."""
    done = "first-order estimate of an edge that carries what its writer wrote in the other run"
    return of_edges(question, attributed(question, edges, paths), edges, intervention=done)


def _unexplained(result: xr.Dataset) -> xr.DataArray:
    """The whole difference between the runs minus the sum over the edges that leave the input."""
    noising = result.direction == "noising"
    base = xr.where(noising, result.clean, result.corrupted)
    from_input = result.writer.isin(["input", *EMBEDDINGS])
    explained = (result.value - base).sel(edge=from_input).sum("edge")
    return xr.where(noising, 1, -1) * (result.corrupted - result.clean) - explained


def _points(model: HookedModel, shares: Sequence[float], along: Along, direction: Direction) -> list[Point]:
    """Shares of the clean run at every point."""
    if along == "inputs":
        return [{START: share} for share in shares]
    base = float(direction == "noising")
    ends = ("attn.hook_z",) if model.cfg.attn_only else ("attn.hook_z", "hook_mlp_out")
    moved = [START, *(f"blocks.{layer}.{end}" for layer in range(model.cfg.n_layers) for end in ends)]
    return [{START: base, place: share} for place in moved for share in shares]
