"""Path patching: which connection between two parts carries the difference between two prompts.

The input of a part is the sum of what earlier parts wrote. Path patching changes one summand: the reader sees what
the writer wrote on the other prompt, every other reader sees what it wrote on this one. With c and x the values of a
metric on the clean and the corrupted prompt and p that under the patch, `analyses.patching.effects` gives

    necessity = (c - p) / (c - x) for noising,    sufficiency = (p - x) / (c - x) for denoising.

The *total* effect of an edge is what the reader's changed output does by every way to the logits; the *direct* effect
what it does to the logits by itself, while every other part still reads what it wrote before. Wang et al. 2022,
"Interpretability in the wild"; Goldowsky-Dill et al. 2023, "Localizing model behavior with path patching". The total
effect under noising, with one edge at a time, is what ACDC's first step and EAP estimate (Conmy et al. 2023).

It shows that the reader's answer depends on what the writer tells it about that in which the prompts differ, given
the rest of the model as it is. It does not show what is told, nor what the prompts have in common. Edges that can
stand in for each other look unneeded; effects do not add up. Frozen attention or normalisation answers another
question: what the edge would do if it could not move patterns, or the scale of the stream.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from mnemoscope.analyses.patching import check_asked, labelled
from mnemoscope.core.edge import LOGITS, Edge, part_name
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import Embeddings, edges
from mnemoscope.interventions.edges.plan import plan_edges
from mnemoscope.interventions.edges.states import State
from mnemoscope.interventions.edges.sweep import sweep_states
from mnemoscope.interventions.edges.written import Freeze
from mnemoscope.interventions.patching.memory import MAX_BYTES
from mnemoscope.interventions.patching.plan import Plan, Way
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction, measured

Effect = Literal["total", "direct"]


def patch_edges(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    chosen: Sequence[Edge] | None = None,
    embeddings: Embeddings = "together",
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    effect: Effect = "total",
    freeze: Collection[Freeze] = (),
    max_bytes: int = MAX_BYTES,
    way: Way = "auto",
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
        freeze: `attention` keeps all patterns of the unchanged run, `layer_norm` the scales of all normalisations.
        max_bytes: Bound on what is allocated on the way, weights and result excepted. It does not change the result.
        way: `stream` continues from the changed residual stream, much faster, for plain HookedTransformers without
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
    one_of("effect", effect, ("total", "direct"))
    chosen = edges(model, embeddings=embeddings) if chosen is None else chosen
    cells = {str(edge): (edge, *_onward(edge)) for edge in chosen}
    if len(cells) < len(chosen) or not chosen:
        raise InputError(f"chosen must name at least one edge, each once; got {len(chosen)}")
    check_asked(model, pairs, metrics, directions)
    options = {"metrics": metrics, "directions": directions}
    how = _plan(model, pairs, chosen, effect, freeze, max_bytes, way)
    if isinstance(how, Plan):
        swept = measured(model, pairs, how, len(chosen), **options, seed=seed)
    else:
        every, states = _states(model, cells, State.LIVE if effect == "total" else State.FROZEN)
        swept = sweep_states(model, pairs, every, states, **options, freeze=freeze, max_bytes=max_bytes, seed=seed)
        swept = replace(swept, way=f"hooks ({how})")
    done = "an edge carries what its writer wrote in the other run"
    result = labelled(model, pairs, swept, {"edge": list(cells)}, **options, intervention=done)
    return result.assign_coords(ends(chosen)).assign_attrs(effect=effect, frozen=" and ".join(freeze) or "nothing")


def patch_paths(
    model: HookedModel,
    pairs: PromptPairs,
    paths: Mapping[str, Sequence[Edge]],
    *,
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    freeze: Collection[Freeze] = (),
    max_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Patch the first edge of a path, and let the change travel along the path only.

    Args:
        model: As for `patch_edges`, and so are the other arguments.
        pairs: Clean and corrupted prompts.
        paths: By name edges of which each starts where the one before has ended; the last one leads to the logits.
        metrics: What is read.
        directions: `noising`, `denoising`, or both.
        freeze: What stays as in the unchanged run.
        max_bytes: Bound on what is allocated on the way.
        seed: For the check of the metrics.

    Returns:
        As `patch_edges`, along `path`.

    Raises:
        InputError: As `patch_edges`; or a path has a gap or does not end at the logits.
    """
    if not paths:
        raise InputError("paths must name at least one; got none")
    for name, path in paths.items():
        ends_ = [edge.reader for edge in path]
        if not path or ends_[-1] != LOGITS or ends_[:-1] != [edge.writer for edge in path[1:]]:
            raise InputError(
                f"every edge of a path starts where the one before has ended, and the last one leads to the logits; "
                f"path {name} is {', '.join(map(str, path)) or 'empty'}"
            )
    check_asked(model, pairs, metrics, directions)
    options = {"metrics": metrics, "directions": directions}
    every, states = _states(model, paths, State.FROZEN)
    swept = sweep_states(model, pairs, every, states, **options, freeze=freeze, max_bytes=max_bytes, seed=seed)
    done = "the first edge of a path carries what its writer wrote in the other run"
    result = labelled(model, pairs, swept, {"path": list(paths)}, **options, intervention=done)
    return result.assign_attrs(frozen=" and ".join(freeze) or "nothing")


def ends(chosen: Sequence[Edge]) -> dict[str, tuple[str, list[str]]]:
    """Writer, reader and input along `edge`, in words; `through` is empty for readers with one input."""
    return {
        "writer": ("edge", [part_name(edge.writer) for edge in chosen]),
        "reader": ("edge", [str(edge.reader) for edge in chosen]),
        "through": ("edge", [edge.through or "" for edge in chosen]),
    }


def _onward(edge: Edge) -> tuple[Edge, ...]:
    """The edge from the reader to the logits."""
    return (Edge(writer=edge.reader),) if isinstance(edge.reader, Site) else ()


def _plan(
    model: HookedModel,
    pairs: PromptPairs,
    chosen: Sequence[Edge],
    effect: Effect,
    freeze: Collection[Freeze],
    max_bytes: int,
    way: Way,
) -> Plan | str:
    """How to take the fast way, or why not."""
    one_of("way", way, get_args(Way))
    if way == "hooks":
        return "asked for"
    direct = effect == "direct"
    how = "parts are frozen" if freeze else plan_edges(model, pairs, chosen, direct=direct, max_bytes=max_bytes)
    if isinstance(how, str) and way == "stream":
        raise InputError(f"way must be 'auto' or 'hooks' here, because {how}; got 'stream'")
    return how


def _states(
    model: HookedModel, cells: Mapping[str, Sequence[Edge]], rest: State
) -> tuple[list[Edge], Int[Tensor, "cell edge"]]:
    """All edges, those of the cells last, and what they carry in each cell."""
    every = edges(model, embeddings="apart")
    own = list(dict.fromkeys(edge for cell in cells.values() for edge in cell))
    number = {edge: len(every) + i for i, edge in enumerate(own)}
    states = torch.full((len(cells), len(every) + len(own)), int(State.UNSAID))
    states[:, : len(every)] = rest
    for row, (first, *later) in enumerate(cells.values()):
        states[row, [number[edge] for edge in later]] = int(State.LIVE)
        states[row, number[first]] = int(State.PATCHED)
    return [*every, *own], states
