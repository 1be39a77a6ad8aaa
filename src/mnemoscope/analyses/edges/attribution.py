"""Edge attribution patching: a first-order estimate of what patching each edge does, from two runs and one gradient.

Path patching changes one edge at a time. To first order the metric moves by

    Σ over positions of (w_other - w_base) · ∂metric / ∂(input of the reader),

where w is what the writer writes and the gradient is taken in the base run: the clean one for noising, the corrupted
one for denoising. One backward pass gives it for all edges. Syed, Rager & Conmy 2023, "Attribution patching
outperforms automated circuit discovery" (EAP); on nodes Nanda 2023, "Attribution patching".

The estimate is a sum over positions for each prompt, positive where the patch would raise the metric. EAP-IG's package
and auto-circuit's mask gradients (`mask_val=0`) take minus the metric, so that their scores are `clean - value` under
noising here, except for what they do over prompts: auto-circuit adds up the means of batches; EAP-IG divides by the
number of prompts whatever the metric has averaged already, so that with `mean=True` it does so twice.

It shows where a small step towards the other prompt would move the metric. It does not show what the whole step does:
through a saturated softmax or a closed ReLU the gradient is about zero and the edge is missed; a divergence from the
clean run has no gradient there at all. `approximation` says how far it is off on a given model.
"""

from collections.abc import Mapping, Sequence

import xarray as xr

from mnemoscope.analyses.edges.patching import ends
from mnemoscope.analyses.patching import check_asked, labelled
from mnemoscope.core.edge import Edge
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.edges.attributed import START, Point, attributed
from mnemoscope.interventions.edges.graph import Embeddings, edges
from mnemoscope.interventions.patching.memory import MAX_BYTES
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction


def attribute_edges(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    max_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `patch_edges` measures, by the gradient in the unpatched run.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream; hooks that are on it stay and act.
        pairs: Clean and corrupted prompts; metrics read at their scored positions.
        chosen: Which edges; of an edge with positions the terms there. None: every edge of the model.
        embeddings: For every edge: whether token and positional embeddings are one writer or two.
        metrics: The value of a prompt is the mean over its scored positions. They need a gradient.
        directions: `noising`, `denoising`, or both.
        max_bytes: Bound on what is allocated on the way, weights and result excepted. It does not change the result.
        seed: For the check that metrics do not move with a constant added to the logits.

    Returns:
        As `patch_edges`; `value` is the metric of the unpatched run plus the estimate.

    Raises:
        InputError: The model has no such edge or no edges that can be told apart, a metric measures no prediction or
            has no gradient, or the budget is too small.
    """
    paths: dict[Direction, list[Point]] = {
        direction: [{START: float(direction == "noising")}] for direction in directions
    }
    result = estimated(
        model, pairs, paths, chosen=chosen, embeddings=embeddings, metrics=metrics, max_bytes=max_bytes, seed=seed
    )
    return result.assign_attrs(gradient="in the unpatched run")


def estimated(
    model: HookedModel,
    pairs: PromptPairs,
    paths: Mapping[Direction, Sequence[Point]],
    *,
    chosen: Sequence[Edge] | None,
    embeddings: Embeddings,
    metrics: Sequence[Metric],
    max_bytes: int,
    seed: int,
) -> xr.Dataset:
    """Estimates of edges with gradients averaged over the points of a path, labelled.

    Arguments and errors as for `attribute_edges`.
    """
    check_asked(model, pairs, metrics, list(paths))
    chosen = edges(model, embeddings=embeddings) if chosen is None else chosen
    names = [str(edge) for edge in chosen]
    if not chosen or len(set(names)) < len(names):
        raise InputError(f"chosen must name at least one edge, each once; got {len(names)}")
    found = attributed(model, pairs, chosen, paths, metrics=metrics, max_bytes=max_bytes, seed=seed)
    done = "first-order estimate of an edge that carries what its writer wrote in the other run"
    options = {"metrics": metrics, "directions": list(paths), "intervention": done}
    return labelled(model, pairs, found, {"edge": names}, **options).assign_coords(ends(chosen))
