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

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
import xarray as xr
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.patching.activations import check_asked, labelled
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ATTENTION, BY_NEURON, Kind, Site
from mnemoscope.interventions.edges.gradients import Traced, check_gradient, gradients, prompts_traced, sums, traced
from mnemoscope.interventions.patching.grid import AXES, Grid, grid
from mnemoscope.interventions.patching.memory import MAX_BYTES
from mnemoscope.interventions.patching.reading import Reader, check_numbers
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction, SweepResult
from mnemoscope.interventions.writing import bypassed, check_written

Attention = Literal["linear", "recomputed"]


def estimate(
    model: HookedModel,
    pairs: PromptPairs,
    *,
    kind: Kind,
    over: Sequence[str],
    attention: Attention = "linear",
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    only: Mapping[str, Sequence[int]] | None = None,
    max_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Estimate what `activations.patch` measures.

    Args:
        model: Any hooked model; hooks that are on it stay and act.
        pairs: Clean and corrupted prompts; metrics read at their scored positions.
        kind: The activation; kinds and axes are those of `patch`.
        over: Which axes to sweep; along the others cells take all together.
        attention: For q and k: `linear` as everything else, or `recomputed`, which costs a forward pass a direction,
            and for k one more for every position that is swept.
        metrics: The value of a prompt is the mean over its scored positions. They need a gradient.
        directions: `noising`, `denoising`, or both.
        only: Along a swept axis the numbers to visit; none: all.
        max_bytes: Bound on what is allocated on the way, weights and result excepted. It does not change the result.
        seed: For the check that metrics do not move with a constant added to the logits.

    Returns:
        As `patch`; `value` is the metric of the unpatched run plus the estimate, so that `activations.effects` applies.

    Raises:
        InputError: As `patch`; or a metric has no gradient, or attention is to be recomputed for another kind.
    """
    check_asked(model, pairs, metrics, directions)
    for direction in directions:
        one_of("a direction", direction, DIRECTIONS)
    one_of("attention", attention, get_args(Attention))
    if attention == "recomputed" and kind not in ("q", "k"):
        raise InputError(f"attention can be recomputed where q or k is patched; leave it linear for {kind}")
    cells = grid(model, "z" if kind == "result" else kind, over, n_pos=pairs.clean.inputs.shape[1], only=only or {})
    for written in (cells.kind,) if attention == "linear" else (cells.kind, "pattern"):
        check_written(model, written, cells.layers)
    value = torch.zeros(len(directions), len(metrics), len(cells.cells), len(pairs), dtype=torch.double)
    unpatched = torch.zeros(2, len(metrics), len(pairs), dtype=torch.double)
    for rows in torch.arange(len(pairs)).split(prompts_traced(model, pairs, max_bytes, n_runs=2)):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        found = _Estimate(model, pairs.select(part), cells, metrics, seed)
        unpatched[..., part] = found.unpatched
        for number, direction in enumerate(directions):
            value[number, ..., part] = found.value(direction, attention)
    swept = SweepResult(value=value, clean=unpatched[0], corrupted=unpatched[1], method="gradients")
    axes = dict(zip(cells.axes, cells.labels, strict=True))
    done = f"first-order estimate of {kind} of one run in place of that of the other"
    result = labelled(model, pairs, swept, axes, metrics=metrics, directions=directions, intervention=done)
    return result.assign_attrs(gradient="in the unpatched run", attention=attention)


class _Estimate:
    """Both runs of some prompts, traced, and what follows for every cell."""

    def __init__(self, model: HookedModel, pairs: PromptPairs, cells: Grid, metrics: Sequence[Metric], seed: int):
        self.model, self.cells = model, cells
        self.tokens = pairs.clean.inputs, pairs.corrupted.inputs
        self.own = [cells.hook(layer) for layer in cells.layers]
        self.beside = {
            name: Site(kind="resid_post", layer=layer).hook
            for layer, name in zip(cells.layers, self.own, strict=True)
            if cells.kind == "resid_mid" and bypassed(model, [layer])
        }
        heads = cells.kind in ("q", "k")
        self.patterns = [Site(kind="pattern", layer=layer).hook for layer in cells.layers] if heads else []
        read = pairs.scored.any(0).nonzero()[:, 0]
        names = [*self.own, *self.beside.values(), *self.patterns]
        self.runs = [traced(model, tokens, names, read) for tokens in self.tokens]
        for run in self.runs:
            check_numbers(run.logits)
        self.reader = Reader.of(pairs, read, metrics, self.runs[0].logits.detach())
        self.reader.check(generator(seed, "metrics"))
        values = [self.reader.mean(self.reader.values(run.logits.detach()[None])[:, 0]) for run in self.runs]
        self.unpatched = torch.stack(values)

    def value(self, direction: Direction, attention: Attention) -> Float[Tensor, "metric cell prompt"]:
        """The metric of the unpatched run plus the estimate."""
        side = 0 if direction == "noising" else 1
        names = self.own if attention == "linear" else self.patterns
        base = self.runs[side]
        found = [self._gradients(base, total, names) for total in sums(self.reader, base)]
        terms = self._linear(side, found) if attention == "linear" else self._recomputed(side, found)
        for metric, of_metric in zip(self.reader.metrics, terms, strict=True):
            check_gradient(of_metric, metric.name)
        moved = torch.stack([_summed(self.cells, of_metric) for of_metric in terms])
        return self.unpatched[side][:, None] + moved.double().cpu()

    def _gradients(self, run: Traced, total: Tensor, names: Sequence[str]) -> list[Tensor]:
        """At some hook points; what goes past them counts too."""
        found = gradients(total, [run[name] for name in (*names, *self.beside.values())])
        past = dict(zip(self.beside, found[len(names) :], strict=True))
        return [past.get(name, 0) + gradient for name, gradient in zip(names, found, strict=False)]

    def _linear(self, side: int, found: Sequence[Sequence[Tensor]]) -> Float[Tensor, "metric layer prompt ..."]:
        """Differences times gradients, a number for each entry that a cell can be made of."""
        base, other = self.runs[side], self.runs[1 - side]
        # masked scores are -inf in both runs
        differs = [torch.where(other[n] == base[n], 0, other[n] - base[n]).detach() for n in self.own]
        terms = torch.stack(
            [torch.stack([d * g for d, g in zip(differs, of_metric, strict=True)]) for of_metric in found]
        )
        return terms if self.cells.kind in (*ATTENTION, *BY_NEURON) else terms.sum(-1)

    def _recomputed(
        self, side: int, found: Sequence[Sequence[Tensor]]
    ) -> Float[Tensor, "metric layer prompt pos head"]:
        """Changes of attention times its gradient. A query moves its own row, a key a column of later rows."""
        base, own = self.runs[side], self.runs[side][self.own[0]]
        terms = own.new_zeros(len(found), len(self.own), *own.shape[:3])
        swept = self.cells.labels[self.cells.axes.index("pos")] if "pos" in self.cells.axes else [None]
        for pos in swept if self.cells.kind == "k" else [None]:
            patterns = self._attended(side, pos)
            for metric, of_metric in enumerate(found):
                for layer, gradient in enumerate(of_metric):
                    moved = (patterns[layer] - base[self.patterns[layer]].detach()) * gradient
                    if self.cells.kind == "q":
                        terms[metric, layer] = reduce(moved, "prompt head query key -> prompt query head", "sum")
                    else:  # heads may share keys
                        shape = "prompt (head shared) query key -> prompt head"
                        terms[metric, layer, :, pos or 0] = reduce(moved, shape, "sum", head=own.shape[2])
        return terms

    @torch.no_grad()
    def _attended(self, side: int, pos: int | None) -> list[Float[Tensor, "prompt head_index query key"]]:
        """Attention with q or k of the other run, everywhere or at one position, in each layer by itself."""
        base, other, found = self.runs[side], self.runs[1 - side], {}
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
        self.model.run_with_hooks(self.tokens[side], fwd_hooks=hooks)
        return [found[name] for name in self.patterns]


def _summed(cells: Grid, terms: Float[Tensor, "layer prompt ..."]) -> Float[Tensor, "cell prompt"]:
    """What cells take together."""
    axes = AXES[cells.kind]
    for axis, labels in zip(cells.axes, cells.labels, strict=True):
        if axis != "layer":  # others are not there
            terms = terms.index_select(2 + axes.index(axis), torch.tensor(labels, device=terms.device))
    return reduce(terms, f"layer prompt {' '.join(axes)} -> ({' '.join(cells.axes)}) prompt", "sum")
