"""Path patching: which connection between two parts carries the difference between two prompts.

The input of a part is the sum of what earlier parts wrote. Path patching changes one summand: the reader sees what
the writer wrote on the other prompt, every other reader sees what it wrote on this one. With c and x the values of a
metric on the clean and the corrupted prompt and p that under the patch, `analyses.patching.effects` gives

    necessity = (c - p) / (c - x) for noising,    sufficiency = (p - x) / (c - x) for denoising.

The *total* effect of an edge is what the reader's changed output does by every way to the logits; the *direct* effect
what it does to the logits by itself, while every other part still reads what it wrote before. Wang et al. 2022,
"Interpretability in the wild"; Goldowsky-Dill et al. 2023, "Localizing model behavior with path patching".

Published definitions. With one edge at a time the total effect under noising is what EAP estimates, and what ACDC and
auto-circuit measure. Wang et al. also let MLPs between writer and reader pass the change on: `between="mlps"` gives
their numbers. TransformerLens has no path patching of its own.

It shows that the reader's answer depends on what the writer tells it about that in which the prompts differ, given
the rest of the model as it is. It does not show what is told, nor what the prompts have in common. Edges that can
stand in for each other look unneeded; effects do not add up. Frozen attention or normalisation answers another
question: what the edge would do if it could not move patterns, or the scale of the stream.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import get_args

import xarray as xr

from mnemoscope.analyses.edges.cells import Between, Effect, of_edge, states
from mnemoscope.analyses.patching import check_asked, labelled
from mnemoscope.core.edge import Edge, part_name
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.edges.graph import Embeddings, edges
from mnemoscope.interventions.edges.plan import plan_edges
from mnemoscope.interventions.edges.states import State
from mnemoscope.interventions.edges.sweep import sweep_states
from mnemoscope.interventions.edges.written import Freeze
from mnemoscope.interventions.patching.memory import MAX_BYTES
from mnemoscope.interventions.patching.plan import Method, Plan
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction, measured


def patch_edges(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    effect: Effect = "total",
    between: Between = "nothing",
    freeze: Collection[Freeze] = (),
    max_bytes: int = MAX_BYTES,
    method: Method = "auto",
    seed: int = 0,
) -> xr.Dataset:
    """Patch edges one at a time.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream; hooks that are on it stay and act.
        pairs: Clean and corrupted prompts; metrics read at their scored positions.
        chosen: Which edges; an edge with positions is patched there only. None: every edge of the model.
        embeddings: For every edge: whether token and positional embeddings are one writer or two.
        metrics: The value of a prompt is the mean over its scored positions.
        directions: `noising`, `denoising`, or both.
        effect: `total`: all that follows from the reader's change; `direct`: what it does to the logits by itself.
        between: `mlps`: MLPs between writer and reader see the other output too, and what they then write goes to the
            reader alone; `nothing`: the edge by itself.
        freeze: `attention` keeps all patterns of the unchanged run, `layer_norm` the scales of all normalisations.
        max_bytes: Bound on what is allocated on the way, weights and result excepted. It does not change the result.
        method: `stream` continues from the changed residual stream, much faster, for plain HookedTransformers without
            hooks and nothing frozen; `hooks` works for all; `auto` takes the first where it can. The results are the
            same.
        seed: For the check that metrics do not move with a constant added to the logits.

    Returns:
        `value` over (direction, metric, edge, prompt), `clean` and `corrupted` over (metric, prompt), as
        `analyses.patching.patch` gives them; `writer`, `reader` and `through` along `edge`.

    Raises:
        InputError: The model has no such edge or no edges that can be told apart, a metric measures no prediction, or
            the budget is too small.
    """
    one_of("effect", effect, get_args(Effect))
    one_of("between", between, get_args(Between))
    chosen = edges(model, embeddings=embeddings) if chosen is None else chosen
    names = [str(edge) for edge in chosen]
    if len(set(names)) < len(names) or not names:
        raise InputError(f"chosen must name at least one edge, each once; got {len(chosen)}")
    check_asked(model, pairs, metrics, directions)
    options = {"metrics": metrics, "directions": directions}
    how = _plan(model, pairs, chosen, effect, between, freeze, max_bytes, method)
    if isinstance(how, Plan):
        swept = measured(model, pairs, how, len(chosen), **options, seed=seed)
    else:
        cells = [of_edge(model, edge, effect=effect, between=between) for edge in chosen]
        every, told = states(model, cells, State.LIVE if effect == "total" else State.FROZEN)
        swept = sweep_states(model, pairs, every, told, **options, freeze=freeze, max_bytes=max_bytes, seed=seed)
        swept = replace(swept, method=f"hooks ({how})")
    done = "an edge carries what its writer wrote in the other run"
    result = labelled(model, pairs, swept, {"edge": names}, **options, intervention=done)
    what = {"effect": effect, "between": between, "frozen": " and ".join(freeze) or "nothing"}
    return result.assign_coords(ends(chosen)).assign_attrs(what)


def ends(chosen: Sequence[Edge]) -> dict[str, tuple[str, list[str]]]:
    """Writer, reader and input along `edge`, in words; `through` is empty for readers with one input."""
    return {
        "writer": ("edge", [part_name(edge.writer) for edge in chosen]),
        "reader": ("edge", [str(edge.reader) for edge in chosen]),
        "through": ("edge", [edge.through or "" for edge in chosen]),
    }


def _plan(
    model: HookedModel,
    pairs: PromptPairs,
    chosen: Sequence[Edge],
    effect: Effect,
    between: Between,
    freeze: Collection[Freeze],
    max_bytes: int,
    method: Method,
) -> Plan | str:
    """How to take the fast way, or why not."""
    one_of("method", method, get_args(Method))
    if method == "hooks":
        return "asked for"
    how: Plan | str
    if freeze:
        how = "parts are frozen"
    elif between == "mlps":
        how = "MLPs pass the patch on"
    else:
        how = plan_edges(model, pairs, chosen, direct=effect == "direct", max_bytes=max_bytes)
    if isinstance(how, str) and method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' here, because {how}; got 'stream'")
    return how
