"""Edge attribution with integrated gradients: the gradient averaged on the way from the corrupted to the clean run.

EAP takes the gradient at one end, where a saturated softmax or a metric at its optimum has none. EAP-IG averages it
over m points: with x the input embeddings

    Σ over positions of (w_other - w_base) · 1/m Σ_k ∂metric / ∂(input of the reader),
    the k-th gradient in the run that starts from x_corrupted + a_k (x_clean - x_corrupted).

Hanna, Pezzelle & Belinkov 2024, "Have faith in faithfulness: going beyond circuit overlap when finding model
mechanisms"; integrated gradients: Sundararajan, Taly & Yan 2017, "Axiomatic attribution for deep networks". The points
a_k are by `rule` k/m with k from 1 to m (`right`: the paper's sum), k/m with k from 0 to m - 1 (`left`: the authors'
package) or (k - 1/2)/m (`middle`, which converges fastest). In the limit of many points the edges that leave the input
add up to the whole difference between clean and corrupted (completeness); no other cut through the graph has to.

`along="activations"` is the package's second variant (with `rule="right"`): the embeddings, the heads of a layer and
an MLP's output in turn are taken from one run to the other while the input stays as it is, and every edge gets the
mean over all of these runs. (Without learned positions the package loses the gradient of the first layer's heads in
the runs that move the embeddings; here it counts.)

The points do not depend on the direction where the inputs are moved, so that noising and denoising get one and the same
estimate with opposite signs: what an edge needs and what it suffices for are not told apart.

It shows, better than EAP, edges whose effect sets in somewhere on the way. It does not show the effect of a patch:
embeddings between two tokens are no prompts, and what a model does there nobody trained.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import xarray as xr

from mnemoscope.analyses.edges.attribution import estimated
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import in_range, one_of
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import EMBEDDINGS
from mnemoscope.interventions.edges.attributed import START, Point
from mnemoscope.interventions.edges.graph import Embeddings
from mnemoscope.interventions.patching.memory import MAX_BYTES
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction

Rule = Literal["left", "right", "middle"]
Along = Literal["inputs", "activations"]

STEPS = 5
"""Points, as published."""

_OFFSETS: dict[Rule, float] = {"left": 0.0, "middle": 0.5, "right": 1.0}


def integrate_edges(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    steps: int = STEPS,
    rule: Rule = "left",
    along: Along = "inputs",
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    max_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `patch_edges` measures, by the gradient averaged between the runs.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream; hooks that are on it stay and act.
        pairs: Clean and corrupted prompts; metrics read at their scored positions.
        chosen: Which edges; of an edge with positions the terms there. None: every edge of the model.
        steps: Points; of each activation where these are moved.
        rule: Where in its step each point lies: at the corrupted end (`left`), at the clean one or in the middle.
        along: What is moved: the input embeddings, or one activation after the other.
        embeddings: For every edge: whether token and positional embeddings are one writer or two.
        metrics: The value of a prompt is the mean over its scored positions. They need a gradient.
        directions: `noising`, `denoising`, or both.
        max_bytes: Bound on what is allocated on the way, weights and result excepted.
        seed: For the check that metrics do not move with a constant added to the logits.

    Returns:
        As `attribute_edges`. For every edge and moved inputs also `unexplained` over (direction, metric, prompt): by
        how much the edges that leave the input miss the whole difference between the runs. Large: take more steps.

    Raises:
        InputError: As `attribute_edges`, or there is no point.
    """
    one_of("rule", rule, get_args(Rule))
    one_of("along", along, get_args(Along))
    in_range("steps", steps, 1, float("inf"))
    shares = [(k + _OFFSETS[rule]) / steps for k in range(steps)]
    paths: dict[Direction, list[Point]] = {
        direction: _points(model, shares, along, direction) for direction in directions
    }
    result = estimated(
        model, pairs, paths, chosen=chosen, embeddings=embeddings, metrics=metrics, max_bytes=max_bytes, seed=seed
    )
    if chosen is None and along == "inputs":
        result = result.assign(unexplained=_unexplained(result))
    return result.assign_attrs(gradient=f"averaged along {along}", steps=steps, rule=rule)


def _unexplained(result: xr.Dataset) -> xr.DataArray:
    """The whole difference between the runs without the sum over the edges that leave the input."""
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
