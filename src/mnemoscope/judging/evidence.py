"""What was measured for a claim, replicate by replicate, with labels.

Replicates of the published and of the quick recipe are never pooled. Prompts are no replicates: they say how sure the
effect of one replicate is, if we know how they came about (`Prompts`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Bool

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.judging.sample import Prompts, Sample

Effects = xr.DataArray | xr.Dataset
"""The only effect of a claim, or one variable a part."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Effects of all replicates, those that fail the gate included.

    Attributes:
        effects: Along `replicate`, and along `prompt` where they are kept per prompt. A coordinate `recipe`, if there
            is one, has a single value. NaN only for replicates that fail the gate. The attribute `unit` is shown.
        gate: What the claim's gate looks at, along `replicate`.
        controls: Effects under each control, by name: a dimension of any name, or none, and `prompt`.
        prompts: How the prompts came about: `own` ones drawn for each replicate, drawn once and `shared`, or
            `enumerated`. None: effects come without prompts, and how sure each one is, is not known.
        replicate: Dimension whose entries are independent of each other.

    Raises:
        InputError: Dimensions, labels or recipes do not fit, or a dimension `prompt` is left unexplained.
    """

    effects: Effects
    gate: xr.DataArray | None = None
    controls: Mapping[str, Effects] = field(default_factory=dict)
    prompts: Prompts | None = None
    replicate: Literal["seed", "draw", "question"] = "seed"

    def __post_init__(self) -> None:
        one_of("prompts of evidence", self.prompts, (*get_args(Prompts), None))
        for name, effect in as_dataset(self.effects).data_vars.items():
            _check_dimensions(f"effect {name}", effect, self.replicate)
            if "prompt" in effect.dims and (self.prompts is None or effect.sizes["prompt"] < 2):
                raise InputError(
                    f"effect {name} is given per prompt, so there must be two or more and prompts must be one of: "
                    f"{', '.join(get_args(Prompts))}; got {effect.sizes['prompt']} and {self.prompts}"
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
        """The effect `name` of the chosen replicates.

        Raises:
            InputError: There is no such effect, or one of them is NaN.
        """
        effect = named(self.effects, name)
        effect = effect.transpose(self.replicate, ...).astype(float)[chosen]
        if effect.mean(set(effect.dims) - {self.replicate}, skipna=False).isnull().any():
            raise InputError(
                f"effect {name} is NaN in a {self.replicate} that passes the gate; say in the measure what it counts as"
            )
        per_prompt = "prompt" in effect.dims
        return Sample(
            values=effect.to_numpy() if per_prompt else effect.to_numpy()[:, None],
            labels=tuple(f"{self.replicate} {label}" for label in self.labels[chosen]),
            prompts=self.prompts if per_prompt or self.prompts == "enumerated" else None,
        )


def as_dataset(effects: Effects) -> xr.Dataset:
    """Effects by name; a lone array keeps its own or is called `effect`."""
    return effects if isinstance(effects, xr.Dataset) else effects.to_dataset(name=effects.name or "effect")


def named(effects: Effects, name: str) -> xr.DataArray:
    """One effect; a lone array answers to every name.

    Raises:
        InputError: There is none of that name.
    """
    if isinstance(effects, xr.DataArray):
        return effects
    one_of("name of an effect", name, map(str, effects.data_vars))
    return effects[name]


def paired(first: xr.DataArray, second: xr.DataArray, *, replicate: str = "seed") -> xr.DataArray:
    """Effect of one configuration minus that of another, seed by seed.

    What two configurations share through the seed (the split of the mappings, say) cancels.

    Raises:
        InputError: They have other replicates or dimensions, or were trained under different recipes.
    """
    for what, of in (
        (f"{replicate}s", lambda x: x[replicate].to_numpy().tolist()),
        ("dimensions", lambda x: sorted(map(str, x.dims))),
        ("recipe", lambda x: sorted(recipes_of(x))),
    ):
        if of(first) != of(second):
            raise InputError(f"effects that are compared must have the same {what}; got {of(first)} and {of(second)}")
    with xr.set_options(keep_attrs=True):
        return first - second


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
