"""Forward passes with interventions in force, on activations, edges and weights.

Hooks already on the model stay and act first. After the block the model is as it was, also after an exception. An
intervention changes a copy of the activation and leaves every entry outside its site bit for bit as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.intervention import (
    AtSite,
    Intervention,
    Knockout,
    LowRank,
    Mean,
    Patch,
    Resample,
    Scale,
    SetPattern,
    Zero,
)
from mnemoscope.core.protocols import HookedModel, ModelLike, evaluation_mode, has_linear_attention, resolve_model
from mnemoscope.core.site import Edge, ParamSite, Site
from mnemoscope.interventions.edge_states import change_edges
from mnemoscope.interventions.graph import check_exists, lay_out_edges
from mnemoscope.interventions.reading import logits_by_engine
from mnemoscope.interventions.recordings import Recordings, head_results
from mnemoscope.interventions.replacements import Replacer, make_replacer, region
from mnemoscope.interventions.writing import Hook, check_written, complete_hooks


@check_arguments
@torch.no_grad()
def run_with(
    model: ModelLike,
    batch: Batch,
    interventions: Sequence[Intervention],
    *,
    seed: int = 0,
    recordings: Recordings | None = None,
) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits with the interventions in force; with none these are exactly the clean logits.

    Interventions may name latents of the batch; those at one place act in this order. Resampling draws from the seed's
    stream `resample`. Pass `recordings` of the same model where several runs take values from the same batches. Raises
    InputError where a site does not exist in the model, or a source does not fit the batch.

    >>> logits = ms.run_with(model, batch, [ms.Zero(site=ms.Site(kind="z", layer=0, head=1))])
    >>> logits.shape
    torch.Size([64, 9, 6])
    """
    model = resolve_model(model, batch=batch)
    with intervene(model, batch, interventions, seed=seed, recordings=recordings):
        return model(batch.inputs)


@check_arguments
@torch.no_grad()
def run_at(
    model: ModelLike,
    batch: Batch,
    interventions: Sequence[Intervention],
    where: Bool[Tensor, "rows pos"],
    *,
    rows: slice | None = None,
    seed: int = 0,
    recordings: Recordings | None = None,
) -> Float[Tensor, "place d_vocab"]:
    """The logits of `run_with` at some places, row by row, to 1e-5; nothing else is unembedded.

    `where` are places of the rows that run; `rows` and errors as for `intervened`.
    """
    model = resolve_model(model, batch=batch)
    inputs = batch.inputs if rows is None else batch.inputs[rows]
    keeps_weights = not any(isinstance(i.site, ParamSite) for i in interventions)
    starts = recordings.starts if recordings is not None and keeps_weights else None
    with intervene(model, batch, interventions, rows=rows, seed=seed, recordings=recordings):
        return logits_by_engine(model, inputs, where, starts=starts)


@check_arguments
@contextmanager
def intervene(
    model: ModelLike,
    batch: Batch,
    interventions: Sequence[Intervention],
    *,
    rows: slice | None = None,
    seed: int = 0,
    recordings: Recordings | None = None,
) -> Iterator[None]:
    """Within the block the model runs intervened, in evaluation mode, on the inputs of `batch` or of some of its rows.

    Arguments and errors as for `run_with`. Only `rows` run (None: all); a row draws the same values whether others run
    or not.
    """
    model = resolve_model(model, batch=batch)
    at_weights = [i for i in interventions if isinstance(i, AtWeight) and isinstance(i.site, ParamSite)]
    at_sites = [(i, i.site) for i in interventions if not isinstance(i, LowRank) and isinstance(i.site, Site)]
    on_edges = [
        (replace(i, site=i.site.written), i.site)
        for i in interventions
        if not isinstance(i, LowRank | SetPattern | Knockout) and isinstance(i.site, Edge)
    ]
    placed = [*at_sites, *((i, edge.written) for i, edge in on_edges)]
    if has_linear_attention(model) and any(isinstance(i, Knockout) for i in interventions):
        raise InputError("a knockout sets scores to minus infinity; attention has no softmax here: zero the pattern")
    for _, site in placed:
        check_exists(model, site)
    at = lay_out_edges(model, [edge for _, edge in on_edges]) if on_edges else None
    for _, site in placed:
        check_written(model, site.kind, [site.layer])
    recordings = Recordings(model) if recordings is None else recordings
    recordings.prepare((i.source, site) for i, site in placed if isinstance(i, Mean | Resample | Patch))
    part = batch if rows is None else batch.select(rows)

    def replacer(i: AtSite) -> Replacer:
        return make_replacer(i, batch, recordings, seed, rows=rows)

    hooks = [hook for i, site in at_sites for hook in _hooks(model, part, site, replacer(i))]
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        stack.enter_context(change_weights(model, at_weights))
        if at is not None:
            changes = [_changed(edge.written, part, replacer(i)) for i, edge in on_edges]
            before, after = stack.enter_context(change_edges(model, at, changes))
            hooks = [*before, *hooks, *after]
        hooks = stack.enter_context(complete_hooks(model, hooks))
        stack.enter_context(model.hooks(fwd_hooks=hooks))
        yield


def _changed(site: Site, batch: Batch, new: Replacer) -> Callable[[Tensor], Tensor]:
    """Return a function that changes an activation at a site only."""

    def changed(activation: Tensor) -> Tensor:
        activation = activation.expand(len(batch), *activation.shape[1:])
        return torch.where(region(site, batch, activation), new(activation), activation)

    return changed


def _hooks(model: HookedModel, batch: Batch, site: Site, new: Replacer) -> list[Hook]:
    """The hooks that change one site: one, or two for the result of a head, which no hook point holds by itself."""
    changed = _changed(site, batch, new)
    if site.kind != "result" or site.layer is None:
        return [(site.hook, lambda activation, hook: changed(activation))]
    layer, seen = site.layer, []

    def see(z: Tensor, hook: Any) -> None:
        seen[:] = [head_results(model, layer, z)]

    def add(attn_out: Tensor, hook: Any) -> Tensor:
        difference = changed(seen[0]) - seen[0]
        return attn_out + difference.sum(2)

    return [(f"blocks.{layer}.attn.hook_z", see), (site.hook, add)]


AtWeight = LowRank | Scale | Zero
Factors = tuple[Float[Tensor, "*head row index"], Float[Tensor, "*head index"], Float[Tensor, "*head index column"]]
"""Left singular vectors, singular values, largest first, and right singular vectors, an index a row."""


class Decompositions:
    """Singular value decompositions of weights, each computed once until the weight changes."""

    def __init__(self) -> None:
        self._kept: dict[ParamSite, tuple[Tensor, Factors]] = {}

    @torch.no_grad()
    def factors(self, site: ParamSite, matrix: Float[Tensor, "*head row column"]) -> Factors:
        """The factors of the matrix at a site, or of one matrix per head."""
        if site not in self._kept or not torch.equal(self._kept[site][0], matrix):
            full = matrix.float() if matrix.itemsize < 4 else matrix  # nothing decomposes bfloat16
            left, size, right = torch.linalg.svd(full, full_matrices=False)
            self._kept[site] = matrix.detach().clone(), (left, size, right)
        return self._kept[site][1]


def weight_at(model: HookedModel, site: ParamSite) -> Tensor:
    """The weight at a site as the model has it, of one head or of all; InputError if there is none."""
    weight = _parameter(model, site).detach()
    return weight if site.head is None else weight[site.head]


@contextmanager
def change_weights(
    model: HookedModel, interventions: Sequence[AtWeight], *, decompositions: Decompositions | None = None
) -> Iterator[None]:
    """Change weights within a block, in the order given.

    `decompositions` are reused where several blocks cut one weight at different ranks.
    """
    decompositions = Decompositions() if decompositions is None else decompositions
    with ExitStack() as stack:
        for intervention in interventions:
            assert isinstance(intervention.site, ParamSite)
            parameter = _parameter(model, intervention.site)
            stack.callback(setattr, parameter, "data", parameter.data)
            parameter.data = _changed_weight(intervention, intervention.site, parameter.data, decompositions)
        yield


def _parameter(model: HookedModel, site: ParamSite) -> torch.nn.Parameter:
    named = dict(model.named_parameters())
    if site.parameter not in named:
        raise InputError(
            f"the model has no parameter {site.parameter} to change at {site}; take a HookedTransformer that has it"
        )
    if site.head is not None:
        in_range(f"the head of {site}", site.head, 0, len(named[site.parameter]) - 1)
    return named[site.parameter]


@torch.no_grad()
def _changed_weight(intervention: AtWeight, site: ParamSite, weight: Tensor, decompositions: Decompositions) -> Tensor:
    def new(part: Tensor) -> Tensor:
        match intervention:
            case Zero():
                return torch.zeros_like(part)
            case Scale(factor=factor):
                return part * factor
            case LowRank(rank=rank, part=kept):
                return _truncated(part, site, rank, kept == "top", decompositions)

    return change_head(site, weight, new)


def change_head(site: ParamSite, weight: Tensor, new: Callable[[Tensor], Tensor]) -> Tensor:
    """The weight with a function applied to the part of the head that the site names, or to all of it."""
    if site.head is None:
        return new(weight)
    result = weight.clone()
    result[site.head] = new(weight[site.head])
    return result


def _truncated(matrix: Tensor, site: ParamSite, rank: int, top: bool, decompositions: Decompositions) -> Tensor:
    """The part of the `rank` largest singular values, or the rest; the matrix itself where that is all of it."""
    full = min(matrix.shape[-2:])
    if (rank >= full) if top else (rank == 0):
        return matrix
    left, size, right = decompositions.factors(site, matrix)
    chosen = slice(None, rank) if top else slice(rank, None)
    return ((left[..., chosen] * size[..., None, chosen]) @ right[..., chosen, :]).to(matrix)
