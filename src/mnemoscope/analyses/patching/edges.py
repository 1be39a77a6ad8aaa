"""Path patching: the connections between two parts that carry the difference between two prompts.

The input of a part is the sum of what earlier parts wrote. Path patching changes one summand: the reader sees what
the writer wrote on the other prompt, every other reader sees what it wrote on this one. With c and x the values of a
metric on the clean and the corrupted prompt and p its value under the patch, `activations.effects` gives

    necessity = (c - p) / (c - x) for noising,    sufficiency = (p - x) / (c - x) for denoising.

The *total* effect of an edge is what the reader's changed output does by every way to the logits. The *direct* effect
is what it does to the logits by itself, while every other part still reads what it wrote before. Wang et al. 2022,
"Interpretability in the wild"; Goldowsky-Dill et al. 2023, "Localizing model behavior with path patching".

Published definitions. With one edge at a time the total effect under noising is what EAP estimates, and what ACDC and
auto-circuit measure. Wang et al. also let MLPs between writer and reader pass the change on: `between="mlps"` gives
their numbers. TransformerLens has no path patching of its own.

It shows that the reader's output depends on what the edge carries about the difference between the prompts, given
the rest of the model as it is. It does not show what that is, nor what the prompts have in common. Edges that can
stand in for each other look unneeded; effects do not add up. Frozen attention or normalisation answers another
question: what the edge would do if it could not move patterns, or the scale of the stream.

Along a *path* the first edge carries its writer's output on the other prompt. The later ones carry what their writers
then write, and all other edges what they carried before. This measures what the first part passes to the last one
along this path alone. Chains of parts that need each other look as if neither counted.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, get_args

import xarray as xr

from mnemoscope.analyses.patching.activations import asked, labelled
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import LOGITS, Edge, coordinates
from mnemoscope.interventions.edges.graph import Embeddings, State, chosen_edges, of_edge, parts_of, states
from mnemoscope.interventions.edges.run import Freeze, sweep_states
from mnemoscope.interventions.edges.through_stream import plan_edges
from mnemoscope.interventions.patching.measuring import DIRECTIONS, Direction, Plan, Question, SweepResult, measured
from mnemoscope.interventions.patching.sweep import Method

Effect = Literal["total", "direct"]
Between = Literal["nothing", "mlps"]


def patch_edges(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    effect: Effect = "total",
    between: Between = "nothing",
    freeze: Collection[Freeze] = (),
    max_bytes: int | None = None,
    method: Method = "auto",
    seed: int = 0,
) -> xr.Dataset:
    """Patch edges one at a time.

    Args:
        model: A HookedTransformer whose parts add up in the residual stream; hooks that are on it stay and act.
        pairs: Clean and corrupted prompts; metrics read at their scored positions.
        chosen: The edges; an edge with positions is patched there only. None: every edge of the model.
        embeddings: For every edge: token and positional embeddings are one writer (`together`) or two (`apart`).
        metrics: The value of a prompt is the mean over its scored positions.
        directions: `noising`, `denoising`, or both.
        effect: `total`: all that follows from the reader's change; `direct`: what it does to the logits by itself.
        between: `mlps`: MLPs between writer and reader see the other output too, and what they then write goes to the
            reader alone; `nothing`: the edge by itself.
        freeze: `attention` keeps all patterns of the unchanged run, `layer_norm` the scales of all normalisations.
        max_bytes: Bound on what is allocated on the way, the result excepted; it does not change it. None: as for
            `activations.patch`.
        method: `stream` continues from the changed residual stream, much faster, for causal models of the engine
            without hooks and nothing frozen; `hooks` works for all; `auto` takes the first where it can. The results
            are the same.
        seed: For the check that metrics do not move with a constant added to the logits.

    Returns:
        `value` over (direction, metric, edge, prompt), `clean` and `corrupted` over (metric, prompt), as
        `activations.patch` gives them; `writer`, `reader` and `through` along `edge`.

    Raises:
        InputError: The model has no such edge or no edges that can be told apart, a metric measures no prediction, or
            the budget is too small.
    """
    one_of("effect", effect, get_args(Effect))
    one_of("between", between, get_args(Between))
    one_of("method", method, get_args(Method))
    edges = chosen_edges(model, chosen, embeddings=embeddings)
    question = asked(model, pairs, metrics, directions, max_bytes, seed)
    direct = effect == "direct"
    if method == "hooks":
        how = "asked for"
    elif freeze or between == "mlps":
        how = "parts are frozen" if freeze else "MLPs pass the patch on"
    else:
        how = plan_edges(question, edges, direct=direct)
    if isinstance(how, Plan):
        swept = measured(question, len(edges), how)
    elif method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' here, because {how}; got 'stream'")
    else:
        cells = [of_edge(model, edge, direct=direct, through_mlps=between == "mlps") for edge in edges]
        every, carried = states(model, cells, State.FROZEN if direct else State.LIVE, question.max_bytes)
        swept = replace(sweep_states(question, every, carried, freeze=freeze), method=f"hooks ({how})")
    result = of_edges(question, swept, edges, intervention="an edge carries what its writer wrote in the other run")
    return result.assign_attrs(effect=effect, between=between, frozen=" and ".join(freeze) or "nothing")


def of_edges(question: Question, swept: SweepResult, edges: Sequence[Edge], *, intervention: str) -> xr.Dataset:
    """The measurements of a sweep over edges, as `patch_edges` returns them."""
    names = coordinates(edges)
    return labelled(question, swept, {"edge": names["edge"][1]}, intervention=intervention).assign_coords(names)


def patch_paths(
    model: HookedModel,
    pairs: PromptPairs,
    paths: Mapping[str, Sequence[Edge]],
    *,
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    freeze: Collection[Freeze] = (),
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Patch the first edge of a path, and let the change travel along the path only.

    `paths` maps names to sequences of edges. Each edge starts where the one before has ended, and the last one leads to
    the logits. The other arguments and errors are those of `patch_edges`; a path with a gap or another end is refused
    too.

    Returns what `patch_edges` does, along `path`.
    """
    if not paths:
        raise InputError("paths must name at least one; got none")
    for name, path in paths.items():
        goes_on = all(later.writer in parts_of(model, edge.reader) for edge, later in pairwise(path))
        if not path or path[-1].reader != LOGITS or not goes_on:
            raise InputError(
                f"every edge of a path starts where the one before has ended, and the last one leads to the logits; "
                f"path {name} is {', '.join(map(str, path)) or 'empty'}"
            )
    question = asked(model, pairs, metrics, directions, max_bytes, seed)
    cells = [{**dict.fromkeys(path[1:], State.LIVE), path[0]: State.PATCHED} for path in paths.values()]
    every, carried = states(model, cells, State.FROZEN, question.max_bytes)
    swept = sweep_states(question, every, carried, freeze=freeze)
    done = "the first edge of a path carries what its writer wrote in the other run"
    result = labelled(question, swept, {"path": list(paths)}, intervention=done)
    return result.assign_attrs(frozen=" and ".join(freeze) or "nothing")
