"""Attribution patching: a first-order estimate of activation patching, for every cell at once.

`activations.patch` runs the model once per cell. To first order the metric moves by

    Σ over the entries of a cell of (a_other - a_base) · ∂metric/∂a,

with the gradient in the base run, the clean one for noising and the corrupted one for denoising: two forward passes
and one backward pass give all cells. Nanda 2023, "Attribution patching: activation patching at industrial scale".

Through a saturated softmax the gradient of q and k is about zero although another q or k would move the attention.
`attention="recomputed"` computes the attention that the patched q or k gives and takes the first order from there on:
the correction of queries and keys of AtP*, Kramár et al. 2024, "AtP*: an efficient and scalable method for localizing
LLM behaviour to components". (AtP*'s second correction, GradDrop, is not here.)

It shows where a small step towards the other prompt would move the metric. It does not show what the whole step does:
ReLUs that open or close, attention of later layers that moves, normalisations that rescale are all held as they are.
`approximation` says how far it is off on a given model.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
import xarray as xr
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.patching.activations import asked, labelled
from mnemoscope.core.batch import Inputs
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION, BY_NEURON, Kind, Site
from mnemoscope.interventions.patching.grid import AXES, Grid, grid
from mnemoscope.interventions.patching.measuring import (
    DIRECTIONS,
    Answer,
    Chunk,
    Direction,
    Plan,
    Question,
    measured,
)
from mnemoscope.interventions.patching.tracing import check_gradient, gradients, prompts_traced, sums, traced
from mnemoscope.interventions.reading import pick_nothing, unembedding
from mnemoscope.interventions.recordings import RecordedRun, check_numbers
from mnemoscope.interventions.writing import bypassed, check_written

Attention = Literal["linear", "recomputed"]


def estimate(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    kind: Kind,
    over: Sequence[str],
    attention: Attention = "linear",
    metrics: Sequence[Metric] | None = None,
    directions: Sequence[Direction] = DIRECTIONS,
    only: Mapping[str, Sequence[int]] | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `activations.patch` measures; its arguments and errors hold here too.

    For q and k `attention` is `linear`, as everything else, or `recomputed`. For each direction that costs one forward
    pass, or for k one for each position that is swept. Raises InputError also where a metric has no gradient, or
    attention is to be recomputed for another kind.

    Returns:
        As `patch`; `value` is the metric of the unpatched run plus the estimate, so that `activations.effects` applies.
    """
    question = asked(model, pairs, metrics, directions, max_bytes, seed)
    one_of("attention", attention, get_args(Attention))
    if attention == "recomputed" and kind not in ("q", "k"):
        raise InputError(f"attention can be recomputed where q or k is patched; leave it linear for {kind}")
    cells = grid(model, kind, over, n_pos=question.n_pos, only=only)
    for written in (cells.kind,) if attention == "linear" else (cells.kind, "pattern"):
        check_written(model, written, cells.layers)
    how = _Estimate(question, cells, attention)
    n_prompts = prompts_traced(question, n_runs=2)
    plan = Plan(method="gradients", n_prompts=n_prompts, run=how.run, answers=how.answers)
    done = f"first-order estimate of {kind} of one run in place of that of the other"
    result = labelled(question, measured(question, len(cells.cells), plan), cells.by_axis, intervention=done)
    return result.assign_attrs(gradient="in the unpatched run", attention=attention)


class _Estimate:
    """The estimate of every cell from both traced runs of some prompts."""

    def __init__(self, question: Question, cells: Grid, attention: Attention):
        self.model, self.read, self.cells, self.attention = question.model, question.read, cells, attention
        self.own = [cells.hook(layer) for layer in cells.layers]
        self.beside = {
            name: Site(kind="resid_post", layer=layer).hook
            for layer, name in zip(cells.layers, self.own, strict=True)
            if cells.kind == "resid_mid" and bypassed(self.model, [layer])
        }
        heads = cells.kind in ("q", "k")
        self.patterns = [Site(kind="pattern", layer=layer).hook for layer in cells.layers] if heads else []

    def run(self, tokens: Inputs) -> RecordedRun:
        """A forward pass without patches."""
        run = traced(self.model, tokens, [*self.own, *self.beside.values(), *self.patterns], self.read)
        check_numbers(run.logits)
        return run

    def answers(self, chunk: Chunk[RecordedRun]) -> Iterator[Answer]:
        """The metric of the unpatched run plus the estimate."""
        names = self.own if self.attention == "linear" else self.patterns
        found = [self._gradients(chunk.base, total, names) for total in sums(chunk.reader, chunk.base)]
        terms = self._linear(chunk, found) if self.attention == "linear" else self._recomputed(chunk, found)
        for metric, of_metric in zip(chunk.reader.metrics, terms, strict=True):
            check_gradient(of_metric, metric.name)
        return chunk.moved(torch.stack([_summed(self.cells, of_metric) for of_metric in terms]))

    def _gradients(self, run: RecordedRun, total: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Gradients at some hook points; the stream that goes past them counts too."""
        found = gradients(total, [run[name] for name in (*names, *self.beside.values())])
        past = dict(zip(self.beside, found[len(names) :], strict=True))
        return [past.get(name, 0) + gradient for name, gradient in zip(names, found, strict=False)]

    def _linear(
        self, chunk: Chunk[RecordedRun], found: Sequence[Sequence[Tensor]]
    ) -> Float[Tensor, "metric layer prompt ..."]:
        """Differences times gradients: one number for each entry that cells can divide."""
        base, other = chunk.base, chunk.source
        # masked scores are -inf in both runs
        differs = [torch.where(other[n] == base[n], 0, other[n] - base[n]).detach() for n in self.own]
        terms = torch.stack(
            [torch.stack([d * g for d, g in zip(differs, of_metric, strict=True)]) for of_metric in found]
        )
        return terms if self.cells.kind in (*ATTENTION, *BY_NEURON) else terms.sum(-1)

    def _recomputed(
        self, chunk: Chunk[RecordedRun], found: Sequence[Sequence[Tensor]]
    ) -> Float[Tensor, "metric layer prompt pos head"]:
        """Changes of attention times its gradient. A query moves its own row, a key a column of later rows."""
        base, own = chunk.base, chunk.base[self.own[0]]
        terms = own.new_zeros(len(found), len(self.own), *own.shape[:3])
        for pos in self.cells.by_axis.get("pos", [None]) if self.cells.kind == "k" else [None]:
            patterns = self._attended(chunk, pos)
            for metric, of_metric in enumerate(found):
                for layer, gradient in enumerate(of_metric):
                    moved = (patterns[layer] - base[self.patterns[layer]].detach()) * gradient
                    if self.cells.kind == "q":
                        terms[metric, layer] = reduce(moved, "prompt head query key -> prompt query head", "sum")
                    else:  # heads may share keys
                        shape = "prompt (head shared) query key -> prompt head"
                        terms[metric, layer, :, pos or 0] = reduce(moved, shape, "sum", head=own.shape[2])
        return terms

    def _attended(
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
        with unembedding(self.model, pick_nothing):
            self.model.run_with_hooks(chunk.batch.inputs, fwd_hooks=hooks)
        return [found[name] for name in self.patterns]


def _summed(cells: Grid, terms: Float[Tensor, "layer prompt ..."]) -> Float[Tensor, "cell prompt"]:
    """The sum of the terms of each cell."""
    axes = AXES[cells.kind]
    for axis, labels in zip(cells.axes, cells.labels, strict=True):
        if axis != "layer":  # others are not there
            terms = terms.index_select(2 + axes.index(axis), torch.tensor(labels, device=terms.device))
    return reduce(terms, f"layer prompt {' '.join(axes)} -> ({' '.join(cells.axes)}) prompt", "sum")
