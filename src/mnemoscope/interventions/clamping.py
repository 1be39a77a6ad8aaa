"""Clamps at work: the changes that they make to a forward pass, in training and on a finished model.

A pass is a pure function of parameters, inputs, masks and patterns, so that gradients and `vmap` apply to it. Masks and
patterns depend on the batch alone and are computed before.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Inputs
from mnemoscope.core.clamp import Clamp, IdealPart, find_ideal, find_mechanism, in_force
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Knockout, Scale, Zero
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.protocols import Task
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, LOGITS, OF_DICTIONARY, ParamSite, Position, Site, Weight
from mnemoscope.core.specification import RunSpec
from mnemoscope.engine.changes import IN_BLOCK, Change, Changes
from mnemoscope.interventions.recordings import recorded_hook
from mnemoscope.interventions.replacements import as_tuple, make_own_replacer, region, with_pattern
from mnemoscope.interventions.run import change_head
from mnemoscope.interventions.truncation import truncate

Weights = Mapping[str, Tensor]
"""Parameters by name."""
Given = Mapping[str, Tensor]
"""Masks and patterns of a batch that clamps use, by name; in an ensemble the first axis is the run."""
_OUTPUT = math.inf, LOGITS
_WRITTEN_BY: Mapping[str, tuple[Weight, ...]] = {
    "embed": ("W_E",),
    "pos_embed": ("W_pos",),
    "q": ("W_Q", "b_Q"),
    "k": ("W_K", "b_K"),
    "v": ("W_V", "b_V"),
    "z": ("W_O",),
    "result": ("W_O",),
    "attn_out": ("W_O", "b_O"),
    "mlp_out": ("W_out", "b_out"),
}
"""Weights that an activation is linear in; of z those that read it. A factor on them needs no step by step run."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A clamp of activations with all that its names stand for. No site: it is at the logits."""

    clamp: Clamp
    sites: tuple[Site, ...]
    mechanism: Mechanism | None = None
    ideal: IdealPart | None = None

    @property
    def point(self) -> str:
        """The hook point at which it acts."""
        return self.sites[0].hook if self.sites else LOGITS

    @property
    def reads(self) -> tuple[Site, ...]:
        """The activations that it needs."""
        by_result = [Site(kind="z", layer=site.layer) for site in self.sites[:1] if site.kind == "result"]
        own = self.ideal.reads if self.ideal else (self.clamp.source,) if self.clamp.patch is not None else ()
        return (*own, *by_result)

    @property
    def written_by(self) -> tuple[ParamSite, ...]:
        """The weights whose scaling scales the activation, to the last bits; none where there are no such weights."""
        linear = all(site.kind in _WRITTEN_BY and site.pos is None for site in self.sites)
        if self.clamp.kind not in ("zero", "scale") or not linear:
            return ()
        return tuple(
            ParamSite(name=name, layer=site.layer, head=site.head)
            for site in self.sites
            for name in _WRITTEN_BY[site.kind]
        )


def make_part(clamp: Clamp, task: Task) -> Part:
    """A clamp of activations under a task without seeds; InputError where it reads what comes later."""
    ideal = None if clamp.ideal is None else find_ideal(task, clamp.ideal)
    named = clamp.places or (() if ideal is None else (ideal.site,))
    sites = tuple(site for site in named if isinstance(site, Site))
    mechanism = None if clamp.pattern is None else find_mechanism(task, clamp.pattern)
    part = Part(clamp=clamp, sites=sites, mechanism=mechanism, ideal=ideal)
    if unknown := [site for site in (*sites, *part.reads) if site.kind in OF_DICTIONARY]:
        raise InputError(
            f"{clamp} needs a dictionary for {unknown[0]}, and models have none in training; clamp mlp_out"
        )
    if clamp.patch is not None:
        _check_patch(clamp, clamp.source, sites[0])
    at = _depth(sites[0]) if sites else _OUTPUT
    for site in part.reads:
        same_point = clamp.patch is not None and recorded_hook(site) == part.point
        if _depth(site) > at or (_depth(site) == at and not same_point):
            raise InputError(f"{clamp} reads {site}, which comes later in the forward pass; read an earlier activation")
    return part


def _check_patch(clamp: Clamp, source: Site, site: Site) -> None:
    if (source.kind in ATTENTION) != (site.kind in ATTENTION) or source.neuron is not None or site.neuron is not None:
        raise InputError(f"{clamp} copies between activations of unlike axes; take a source like {site.kind}")
    if source.kind in BY_HEAD and site.kind not in BY_HEAD and source.head is None:
        raise InputError(f"{clamp} copies from all heads; name one, such as L0H1 {source.kind}")


def _depth(site: Site) -> tuple[float, object]:
    """Place in the order of the forward pass; queries, keys and values have one."""
    if site.layer is None:
        return -1, 0
    point = "attn.hook_k" if site.kind in ("q", "k", "v") else site.hook.removeprefix(f"blocks.{site.layer}.")
    return site.layer, IN_BLOCK.index(point)


@dataclass(frozen=True, kw_only=True)
class Held:
    """Clamps in force at a step, each with the part of its change, on the batches of some runs."""

    parts: tuple[tuple[Part, float], ...]
    weights: tuple[tuple[ParamSite, Clamp, float], ...]
    by_run: Given
    """Masks and patterns that differ between runs; the first axis is the run."""
    shared: Given
    """Masks and patterns that all runs share."""

    def outputs(
        self,
        params: Weights,
        inputs: Inputs,
        own: Given,
        run: Callable[[Weights, Changes], Tensor],
        positions: Int[Tensor, " read"],
    ) -> Float[Tensor, "batch read d_output"]:
        """Outputs at some positions of every sequence; `own` is one run's part of `by_run`."""
        params = self.change_weights(params)
        by_point = self.changes(params, inputs, own)
        finish = by_point.pop(LOGITS, None)
        outputs = run(params, Changes(by_point, exact=False))
        if finish is None:
            return outputs
        everywhere = outputs.new_zeros(*inputs.shape[:2], outputs.shape[-1])
        changed = finish(everywhere.index_copy(1, positions, outputs))
        assert changed is not None
        return changed.index_select(1, positions)

    def change_weights(self, params: Weights) -> Weights:
        """The parameters with those that are clamped in their place."""
        changed = dict(params)
        for site, clamp, share in self.weights:
            weight = changed[site.parameter]
            changed[site.parameter] = change_head(site, weight, partial(_mixed_weight, clamp, share))
        return changed

    def changes(
        self, params: Weights, inputs: Inputs, own: Given, seen: dict[str, Tensor] | None = None
    ) -> dict[str, Change]:
        """The change at every hook point; at `logits` that of the output at all positions.

        The activations that clamps read fill up `seen` on the way, by hook point. Who changes one of them after its
        clamps puts it there anew.
        """
        here = _Pass(params=params, inputs=inputs, given={**self.shared, **own}, seen={} if seen is None else seen)
        at_point: dict[str, list[Change]] = {}
        observed: dict[str, None] = {}
        for number, (part, share) in enumerate(self.parts):
            observed.update({recorded_hook(site): None for site in part.reads if recorded_hook(site) != part.point})
            change = partial(_change, part, share, number, here)
            at_point.setdefault(part.point, []).append(change)
        for point in observed:
            at_point.setdefault(point, []).append(partial(_see, here.seen, point))
        return {point: partial(_in_turn, changes) for point, changes in at_point.items()}


def _see(seen: dict[str, Tensor], point: str, activation: Tensor) -> None:
    seen[point] = activation


def _in_turn(changes: Sequence[Change], activation: Tensor) -> Tensor:
    for change in changes:
        changed = change(activation)
        activation = activation if changed is None else changed
    return activation


def _mixed_weight(clamp: Clamp, share: float, weight: Tensor) -> Tensor:
    match clamp.kind:
        case "zero":
            return weight * (1 - share)
        case "scale":
            return weight * (1 + share * ((clamp.scale or 0.0) - 1))
        case _:
            return torch.lerp(weight, truncate(weight, clamp.rank or 0), share)


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """One forward pass as clamps see it; `seen` fills up on the way."""

    params: Weights
    inputs: Inputs
    given: Given
    seen: dict[str, Tensor] = field(default_factory=dict)

    def read(self, site: Site) -> Tensor:
        """The activation at a site, at all positions; without the axis of heads where the site names one."""
        activation = self.seen[recorded_hook(site)]
        if site.kind == "result":
            activation = torch.einsum("bphd,hdm->bphm", activation, self.params[f"blocks.{site.layer}.attn.W_O"])
        if site.head is None:
            return activation
        return activation[:, site.head] if site.kind in ATTENTION else activation[:, :, site.head]


def _change(part: Part, share: float, number: int, here: _Pass, old: Tensor) -> Tensor:
    """The activation at the place of a clamp, with its change."""
    if part.sites and part.sites[0].kind == "result":
        results = here.read(Site(kind="result", layer=part.sites[0].layer))
        return old + (_replaced(part, share, number, here, results) - results).sum(2)
    return _replaced(part, share, number, here, old)


def _replaced(part: Part, share: float, number: int, here: _Pass, old: Tensor) -> Tensor:
    clamp, mask = part.clamp, here.given.get(f"{number}/mask")
    match clamp.kind:
        case "zero":
            new = make_own_replacer(Zero(site=part.sites[0]))(old)
        case "scale":
            new = make_own_replacer(Scale(site=part.sites[0], factor=clamp.scale or 0.0))(old)
        case "knockout" if share < 1:
            new, share = old + math.log1p(-share), 1.0  # the weight of a key, which scores are the logarithm of
        case "knockout":
            new = make_own_replacer(Knockout(site=part.sites[0]))(old)
        case "mean":
            new = old.mean(0, keepdim=True)
        case "pattern":
            new = with_pattern(old, here.given[f"{number}/pattern"])
        case "patch":
            source = clamp.source
            whole = old if recorded_hook(source) == part.point else here.read(replace(source, head=None))
            new = _moved(whole, source, part.sites)
        case _:
            new = _ideal_value(part, here, old)
    mixed = new if share == 1 else (1 - share) * old + share * new
    mixed = mixed.expand_as(old) if mask is None else torch.where(mask, mixed, old)
    is_scores = bool(part.sites) and part.sites[0].kind == "scores"
    return torch.where(old.isneginf(), old, mixed) if is_scores else mixed


def _ideal_value(part: Part, here: _Pass, old: Tensor) -> Tensor:
    """The value of an ideal part, with the axis of heads where the activation has one."""
    assert part.ideal is not None
    new = part.ideal.value(here.inputs, *(here.read(site) for site in part.ideal.reads)).to(old)
    if part.sites and part.sites[0].kind in BY_HEAD and part.sites[0].head is not None:
        new = new.unsqueeze(1 if part.sites[0].kind in ATTENTION else 2)
    return torch.where(new.isnan(), old, new) if part.sites and part.sites[0].kind == "pattern" else new


def _moved(activation: Tensor, source: Site, sites: Sequence[Site]) -> Tensor:
    """The activation with the entries of the source where those of the sites are; elsewhere they do not count."""
    by_head, query = sites[0].kind in BY_HEAD, 2 if source.kind in ATTENTION else 1
    for axis, name in ((query, "pos"), (query + 1, "key")):
        there, here = getattr(source, name), getattr(sites[0], name)
        if there != here:
            taken = _places_to_take(there, here, activation.shape[axis])
            activation = activation.index_select(axis, torch.tensor(taken, device=activation.device))
    if source.head is not None:
        axis = 1 if source.kind in ATTENTION else 2
        activation = activation.narrow(axis, source.head, 1)
        return activation if by_head else activation.squeeze(axis)
    return activation.unsqueeze(2) if by_head and source.kind not in BY_HEAD else activation


def _places_to_take(there: Position | None, here: Position | None, n: int) -> list[int]:
    """For each index of the target axis, the index of the source to copy from."""
    from_, to = (
        tuple(place % n for place in as_tuple(each)) if not isinstance(each, str) else () for each in (there, here)
    )
    targets = to or tuple(range(n))
    if isinstance(there, str) or not from_ or len(from_) not in (1, len(targets)):
        raise InputError(
            f"a patch takes one position, or as many as the place names, {len(targets)}; got {there!r}; number them"
        )
    taken = [from_[0]] * n
    for place, number in zip(targets, from_ * len(targets) if len(from_) == 1 else from_, strict=False):
        taken[place] = number
    return taken


@dataclass(frozen=True, kw_only=True)
class Clamping:
    """The clamps of a recipe on models of one architecture.

    `task` is that of the configuration, without seeds. `n_heads` and `d_mlp` are the sizes of activations.
    """

    clamps: tuple[Clamp, ...]
    task: Task
    n_heads: int
    d_mlp: int
    _parts: dict[Clamp, Part] = field(default_factory=dict)
    _fixed: dict[tuple[Clamp, str, int, torch.device], Tensor] = field(default_factory=dict)

    def part(self, clamp: Clamp) -> Part:
        """A clamp of activations with all that its names stand for; InputError where they stand for nothing."""
        if clamp not in self._parts:
            self._parts[clamp] = make_part(clamp, self.task)
        return self._parts[clamp]

    def held(self, step: int, batches: Callable[[], Sequence[Batch]]) -> Held | None:
        """The clamps of update number `step` on the batches of some runs; None, and no batch is made, where none is."""
        found = [(clamp, share) for clamp, share in in_force(self.clamps, step).items() if clamp.kind != "hold"]
        if not found:
            return None
        parts = [(clamp, self.part(clamp), share) for clamp, share in found if not clamp.is_at_weights]
        if not all(part.written_by for _, part, _ in parts):
            return self.hold(found, batches())
        at_weights = [(site, clamp, share) for clamp, part, share in parts for site in part.written_by]
        at_weights += _at_weights(found)
        return Held(parts=(), weights=tuple(at_weights), by_run={}, shared={})

    def hold(self, shares: Sequence[tuple[Clamp, float]], batches: Sequence[Batch]) -> Held:
        """Clamps on batches, each with the part of its change, all of them at their own place."""
        parts = tuple((self.part(clamp), share) for clamp, share in shares if not clamp.is_at_weights)
        by_run: dict[str, Tensor] = {}
        shared: dict[str, Tensor] = {}
        for number, (part, _) in enumerate(parts):
            for name, make in (("mask", self._mask), ("pattern", _pattern)):
                if (fixed := self._fixed_value(part, name, batches[0])) is not None:
                    shared[f"{number}/{name}"] = fixed
                elif (own := [make(part, batch) for batch in batches])[0] is not None:
                    values = [value for value in own if value is not None]
                    if _is_fixed(part, name, values[0], batches[0]):
                        key = (part.clamp, name, batches[0].inputs.shape[1], batches[0].inputs.device)
                        self._fixed[key] = shared[f"{number}/{name}"] = values[0][:1].clone()
                    else:
                        by_run[f"{number}/{name}"] = torch.stack(values)
        return Held(parts=parts, weights=_at_weights(shares), by_run=by_run, shared=shared)

    def points(self, clamps: Sequence[Clamp]) -> tuple[str, ...]:
        """The hook points that clamps of activations change or read, and `logits`."""
        parts = [self.part(clamp) for clamp in clamps]
        read = (recorded_hook(site) for part in parts for site in part.reads)
        return tuple(dict.fromkeys((*(part.point for part in parts), *read)))

    def _fixed_value(self, part: Part, name: str, batch: Batch) -> Tensor | None:
        return self._fixed.get((part.clamp, name, batch.inputs.shape[1], batch.inputs.device))

    def _mask(self, part: Part, batch: Batch) -> Bool[Tensor, "..."] | None:
        """The entries that a clamp selects; None: all of the activation."""
        if not part.sites or all((site.head, site.neuron, site.pos, site.key) == (None,) * 4 for site in part.sites):
            return None
        n_pos, kind = batch.inputs.shape[1], part.sites[0].kind
        sizes = (
            (self.n_heads, n_pos, n_pos)
            if kind in ATTENTION
            else (n_pos, *((self.n_heads, 1) if kind in BY_HEAD else (self.d_mlp if kind in BY_NEURON else 1,)))
        )
        like = torch.empty(1, device=batch.inputs.device, dtype=torch.bool).expand(len(batch), *sizes)
        return reduce(torch.logical_or, (region(site, batch, like) for site in part.sites))


def _at_weights(shares: Sequence[tuple[Clamp, float]]) -> tuple[tuple[ParamSite, Clamp, float], ...]:
    placed = ((place, clamp, share) for clamp, share in shares for place in clamp.places)
    return tuple((place, clamp, share) for place, clamp, share in placed if isinstance(place, ParamSite))


def make_clamping(spec: RunSpec) -> Clamping | None:
    """The clamps of a run at work; None without clamps."""
    if not spec.recipe.clamps:
        return None
    task, model, recipe = spec.configuration
    return Clamping(clamps=recipe.clamps, task=task, n_heads=model.n_heads, d_mlp=model.mlp_width)


def _pattern(part: Part, batch: Batch) -> Float[Tensor, "batch query key"] | None:
    return None if part.mechanism is None else part.mechanism.pattern(batch)


def _is_fixed(part: Part, name: str, value: Tensor, batch: Batch) -> bool:
    """True if a value is the same for every sequence: it has one row, or one row stands for all."""
    if name == "mask":
        named = [place for site in part.sites for place in (site.pos, site.key) if isinstance(place, str)]
        return all(place in batch.positions for place in named) if named else True
    return len(batch) > 1 and value.stride(0) == 0
