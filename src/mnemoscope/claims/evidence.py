"""The measurements for a claim, per replicate, with labels, and the sample of replicates that it is judged on.

Replicates of the published and of the quick recipe are never pooled. Prompts are no replicates: they give
the error of the effect of one replicate, if we know how they came about (`Prompts`). A replicate counts on one side of
a margin if its own error allows no other: at `OWN_LEVEL` where prompts are its own, at `SHARED_LEVEL` over the number
of replicates where all share them and err together. Enumerated prompts have no error; where effects come without
prompts, their errors are not known and they are taken as they are.

That error is taken by Student's t over prompts. Where every prompt has the effect 0 or 1 the exact binomial tail of
their sum takes its place: five prompts that are all answered do not show that nearly all are. Other values that have
bounds, such as probabilities, which saturate, need the p of `bounded` too. Where all prompts have the same other effect
no error can be given.

Prompts that were made from one source (a text, a fact, a template) are no independent draws. A coordinate `source`
says which belong together: each source then counts as one prompt, whose effect is the mean over its own. Where there is
none and neighbouring prompts are alike, blocks of neighbours count as one. *Does not show* sources that are not named
and whose prompts do not lie beside each other.

Replicates that share something, such as initial weights, are no independent draws either. `shared` names what all of
them share; the verdict is then about draws of the rest. A coordinate `group` says which replicates share something that
others do not: they count as fewer, by their intraclass correlation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy import stats

from mnemoscope.claims.bounded import limits_within, p_mean_above, p_mean_below
from mnemoscope.claims.claim import SOURCE, Prompts, Replicate
from mnemoscope.claims.criterion import Criterion, subtract_bound
from mnemoscope.core.errors import InputError, one_of

Effects = xr.DataArray | xr.Dataset
"""The only effect of a claim, or one variable per part."""
OWN_LEVEL = 0.01
"""Rate at which a replicate at its margin is counted on one side, by prompts of its own."""
SHARED_LEVEL = 0.005
"""Rate at which any replicate at its margin is, by prompts that all share."""
GROUP = "group"
"""Name of the coordinate that says which replicates share something."""
_ALIKE = 0.001
_FEW_BLOCKS = 4
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One effect in the replicates that count.

    `values` has one per replicate and prompt, or a single column where effects come without prompts. `labels` are the
    replicates in words, such as seed 7. `prompts` says how the prompts came about; None: effects come without, and
    their own error is not known. The `n_left_out` other replicates were begun and are not known; they count against
    every decision. `block` is the number of neighbouring prompts that count as one. `groups` has the group of each
    replicate; None: they are independent.
    """

    values: Float[np.ndarray, "replicate prompt"]
    labels: tuple[str, ...]
    prompts: Prompts | None
    n_left_out: int = 0
    block: int = 1
    groups: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def effects(self) -> Float[np.ndarray, " replicate"]:
        """Mean over prompts."""
        return self.values.mean(1)

    @property
    def own_level(self) -> float:
        """Rate at which a replicate at its margin is counted by chance; 0 where effects are taken as they are."""
        return {"own": OWN_LEVEL, "shared": SHARED_LEVEL / max(1, len(self))}.get(self.prompts or "", 0.0)

    @property
    def chance(self) -> float:
        """The share that is counted on one side if half of the replicates lie there, and the others at the margin."""
        return (1 + OWN_LEVEL) / 2 if self.prompts == "own" else 0.5

    def clears(self, part: Criterion, n_parts: int = 1) -> Bool[np.ndarray, " replicate"]:
        """True for replicates that clear the margin by more than their prompts explain.

        At the level of one replicate, or of each of `n_parts` if any of these may count.
        """
        clear = part.slack(self.effects) > 0
        return clear & (self.p_clears(part) <= self.own_level / n_parts) if self.own_level else clear

    def fails(self, part: Criterion, n_parts: int = 1) -> Bool[np.ndarray, " replicate"]:
        """True for replicates that fail it by more than that."""
        fail = part.slack(self.effects) < 0
        return fail & (self.p_fails(part) <= self.own_level / n_parts) if self.own_level else fail

    def p_clears(self, part: Criterion) -> Float[np.ndarray, " replicate"]:
        """Per replicate, its p against "its effect does not clear the margin".

        It comes from Student's t over prompts, or from the exact binomial tail where each is 0 or 1; where values have
        bounds it is no less than theirs. It is 0 or 1 where prompts are enumerated, and 1 where the error of an effect
        is not known.
        """
        match part.direction:
            case "above":
                return self._p(1, part.margin)
            case "below":
                return self._p(-1, part.margin)
            case "within":
                return np.maximum(self._p(1, -part.margin), self._p(-1, part.margin))

    def p_fails(self, part: Criterion) -> Float[np.ndarray, " replicate"]:
        """Per replicate, its p against "its effect does clear the margin, or lies at it"."""
        match part.direction:
            case "above":
                return self._p(-1, part.margin)
            case "below":
                return self._p(1, part.margin)
            case "within":
                # Beyond either end: two tests, so p doubles.
                return np.minimum(1, 2 * np.minimum(self._p(1, part.margin), self._p(-1, -part.margin)))

    def _p(self, side: int, bound: float) -> Float[np.ndarray, " replicate"]:
        distance = side * subtract_bound(self.effects, bound)
        if self.prompts is None:
            return np.ones(len(self))
        if self.prompts == "enumerated":
            return np.where(distance > 0, 0.0, 1.0)
        n = self.values.shape[1]
        with np.errstate(invalid="ignore"):  # infinite effects have no spread, and need none
            error = self.values.std(1, ddof=1) / n**0.5
        p = np.where((error > 0) | np.isinf(distance), stats.t.sf(signed_ratio(distance, error), n - 1), 1.0)
        exact = np.isin(self.values, (0.0, 1.0)).all(1)
        p = np.where(exact, _binomial_tail(side, self.values.sum(1), n, bound), p)
        finite = np.isfinite(self.values).all(1) & ~exact
        if finite.any():
            limits = limits_within(self.values[finite])
            side_limit = limits[0] if side > 0 else limits[1]
            if np.isfinite(side_limit):
                p_bounded = p_mean_above if side > 0 else p_mean_below
                p[finite] = np.maximum(p[finite], p_bounded(self.values[finite], bound, limits))
        return np.where(distance == 0, 1.0, p)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Effects of all replicates, those that fail the gate included.

    Attributes:
        effects: Along `replicate`, and along `prompt` where they are kept per prompt. A coordinate `recipe`, if there
            is one, has a single value. A coordinate `source` along `prompt` (or both) says which prompts were made from
            one source, a coordinate `group` along the replicates which of these share something. NaN only for
            replicates that fail the gate. The attribute `unit` is shown.
        gate: What the claim's gate looks at, along `replicate`.
        controls: Effects under each control, by name: a dimension of any name, or none, and `prompt`.
        prompts: How the prompts came about: `own` ones drawn for each replicate, drawn once and `shared`, or
            `enumerated`. None: effects come without prompts, and their own errors are not known.
        replicate: Dimension whose entries are independent of each other.
        left_out: Labels of replicates that were begun and have no effects, such as seeds whose training did not end.
            What they would have shown may be why, so they count against every decision.
        models: Of a claim about language models, those that were asked.
        shared: What all replicates have in common, such as initial weights, in words; the verdict says so.

    Raises:
        InputError: Dimensions, labels or recipes do not fit, or a dimension `prompt` is left unexplained.
    """

    effects: Effects
    gate: xr.DataArray | None = None
    controls: Mapping[str, Effects] = field(default_factory=dict)
    prompts: Prompts | None = None
    replicate: Replicate = "seed"
    left_out: Sequence[int] = ()
    models: Sequence[str] = ()
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("prompts of evidence", self.prompts, (*get_args(Prompts), None))
        for name, effect in as_dataset(self.effects).data_vars.items():
            _check_dimensions(f"effect {name}", effect, self.replicate)
            if "prompt" in effect.dims and (self.prompts is None or effect.sizes["prompt"] < 2):
                raise InputError(
                    f"effect {name} is given per prompt, so there must be two or more and prompts must be one of: "
                    f"{', '.join(get_args(Prompts))}; got {effect.sizes['prompt']} and {self.prompts}"
                )
            if self.prompts == "shared" and "prompt" not in effect.dims:
                raise InputError(
                    f"effect {name} is a mean over shared prompts, which hides how far they move all replicates "
                    "together; give it per prompt"
                )
        if self.gate is not None:
            _check_dimensions("gate", self.gate, self.replicate)
            if set(self.gate.dims) != {self.replicate} or not np.array_equal(self._labels(self.gate), self.labels):
                raise InputError(
                    f"gate must have the {self.replicate}s of the effects, {self.labels.tolist()}; "
                    f"got {self._labels(self.gate).tolist()} along {self.gate.dims}"
                )
        recipes = recipes_of(self.effects) | (recipes_of(self.gate) if self.gate is not None else set())
        if len(recipes) > 1:
            raise InputError(f"evidence must be of one recipe; got {', '.join(sorted(recipes))}; judge them apart")

    @property
    def labels(self) -> np.ndarray:
        """Labels of the replicates."""
        return self._labels(self.effects)

    def _labels(self, values: Effects) -> np.ndarray:
        return values[self.replicate].to_numpy()

    def sample(self, name: str, chosen: Bool[np.ndarray, " all"]) -> Sample:
        """The effect `name` of the chosen replicates; InputError where there is none, or one of them is NaN."""
        effect = select_effect(self.effects, name).transpose(self.replicate, ...)
        named, grouped, rows = SOURCE in effect.coords, GROUP in effect.coords, chosen
        if named or grouped:
            effect, rows = effect[chosen], np.full(int(chosen.sum()), True)
        if named and len(effect):
            effect = _by_source(effect.astype(float), self.replicate)
        values = effect.to_numpy().astype(float)[rows]  # by xarray it would take half of the time of a verdict
        per_prompt = values.ndim > 1
        values = values if per_prompt else values[:, None]
        with np.errstate(invalid="ignore"):
            unknown = np.isnan(values.mean(1)).any()
        if unknown:
            raise InputError(
                f"effect {name} is NaN in a {self.replicate} that passes the gate; say in the measure what it counts as"
            )
        drawn = per_prompt and self.prompts != "enumerated" and not named
        block = _alike_neighbours(values, shared=self.prompts == "shared") if drawn else 1
        return Sample(
            values=_by_block(values, block),
            labels=tuple(f"{self.replicate} {label}" for label in self.labels[chosen]),
            prompts=self.prompts if per_prompt or self.prompts == "enumerated" else None,
            n_left_out=len(self.left_out),
            block=block,
            groups=_numbered(effect, self.replicate) if grouped else None,
        )


def _binomial_tail(
    side: int, n_hits: Float[np.ndarray, " replicate"], n: int, bound: float
) -> Float[np.ndarray, " replicate"]:
    """P of as many hits among n, or more (side 1) or fewer (-1), where each is one with probability `bound`."""
    share = min(max(bound, 0.0), 1.0)
    return stats.binom.sf(n_hits - 1, n, share) if side > 0 else stats.binom.cdf(n_hits, n, share)


def _by_source(effect: xr.DataArray, replicate: str) -> xr.DataArray:
    """Effects with one prompt per source, the mean over its prompts; sources must be several and of equal number."""
    source = effect[SOURCE].broadcast_like(effect).transpose(replicate, "prompt").to_numpy()
    rows = effect.transpose(replicate, "prompt").to_numpy()
    means = [
        np.bincount(labels, row) / np.bincount(labels)
        for row, labels in zip(rows, (np.unique(each, return_inverse=True)[1] for each in source), strict=True)
    ]
    numbers = sorted({len(each) for each in means})
    if len(numbers) > 1 or numbers[:1] == [1]:
        raise InputError(f"prompts must be of as many sources in every {replicate}, two or more; got {numbers}")
    coords = {name: effect[name] for name in (replicate, GROUP) if name in effect.coords}
    return xr.DataArray(np.array(means), dims=(replicate, "prompt"), coords=coords, attrs=effect.attrs)


def _alike_neighbours(values: Float[np.ndarray, "replicate prompt"], *, shared: bool) -> int:
    """The number of neighbouring prompts that have to count as one: 1 unless neighbours are alike beyond chance.

    What all replicates have in common at a prompt is set aside, unless they share it. With n prompts, there are about
    as many blocks as prompts in each.
    """
    n_rows, n = values.shape
    if n < _FEW_BLOCKS**2 or not np.isfinite(values).all():
        return 1
    rest = values - values.mean(1, keepdims=True)
    if shared:
        rest = rest.mean(0, keepdims=True)
    elif n_rows > 1:
        rest = rest - rest.mean(0)
    total = float((rest**2).sum())
    if total <= _ROUNDING * float((values**2).sum()):
        return 1
    correlation = float((rest[:, 1:] * rest[:, :-1]).sum()) / total + 1 / n  # means taken out make neighbours unlike
    alike = stats.norm.sf(correlation * (len(rest) * (n - 1)) ** 0.5) <= _ALIKE
    return round(n**0.5) if alike else 1


def _by_block(values: Float[np.ndarray, "replicate prompt"], block: int) -> Float[np.ndarray, "replicate block"]:
    """Means over blocks of neighbouring prompts."""
    if block == 1:
        return values
    return np.column_stack([part.mean(1) for part in np.array_split(values, values.shape[1] // block, axis=1)])


def _numbered(effect: xr.DataArray, replicate: str) -> tuple[int, ...]:
    """The group of every replicate, as a number."""
    if effect[GROUP].dims != (replicate,):
        raise InputError(f"{GROUP} of effects must lie along {replicate}; got {effect[GROUP].dims}")
    return tuple(np.unique(effect[GROUP].to_numpy(), return_inverse=True)[1].tolist())


def as_dataset(effects: Effects) -> xr.Dataset:
    """Effects by name; a lone array keeps its own or is called `effect`."""
    return effects if isinstance(effects, xr.Dataset) else effects.to_dataset(name=effects.name or "effect")


def select_effect(effects: Effects, name: str) -> xr.DataArray:
    """One effect; a lone array answers to every name."""
    if isinstance(effects, xr.DataArray):
        return effects
    one_of("name of an effect", name, map(str, effects.data_vars))
    return effects[name]


def prompt_mean(effect: xr.DataArray) -> xr.DataArray:
    """Mean over prompts, where there are any."""
    return effect.mean("prompt") if "prompt" in effect.dims else effect


def recipes_of(values: Effects) -> set[str]:
    """The recipes named by a coordinate `recipe`; none if there is no such coordinate."""
    return {str(recipe) for recipe in np.ravel(values.coords["recipe"])} if "recipe" in values.coords else set()


def _check_dimensions(what: str, values: xr.DataArray, replicate: str) -> None:
    """Refuse values without labelled, different replicates, or with dimensions that nothing here reduces."""
    if replicate not in values.dims or not set(values.dims) <= {replicate, "prompt"}:
        raise InputError(f"{what} must have the dimension {replicate} and may have prompt; got {values.dims}")
    if replicate not in values.coords:
        raise InputError(f"{what} must have labels along {replicate}; got none; give it that coordinate")
    labels = values[replicate].to_numpy().tolist()
    if len(set(labels)) < len(labels):
        raise InputError(f"{what} must have every {replicate} once; got {labels}")


def signed_ratio(distance: Float[np.ndarray, "*shape"], error: Float[np.ndarray, "*#shape"]) -> np.ndarray:
    """Distance over its standard error; without error infinite on the side of the distance, and 0 / 0 = 0."""
    certain = np.where(distance == 0, 0.0, np.copysign(np.inf, distance))
    return np.divide(distance, error, out=certain, where=error > 0)
