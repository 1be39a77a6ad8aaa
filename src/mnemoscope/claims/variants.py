"""Variants of a claim: its rivals, its sensitivity table, its multiverse, and the same of other configurations."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mnemoscope.claims.claim import (
    MIN_REPLICATES,
    Claim,
    is_training_factor,
)
from mnemoscope.claims.functions import check_key, check_named, modules_of
from mnemoscope.claims.measures import (
    Factors,
    MeasureCall,
)
from mnemoscope.claims.multiverse import Combination, combinations
from mnemoscope.claims.registration import (
    functions_of,
    registered_versions,
)
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration


@dataclass(frozen=True, kw_only=True)
class ClaimVariant:
    """A claim or a rival, as it stands or with factors changed.

    A cell of the sensitivity table changes one, a combination of the multiverse any number. `version` is that of the
    measure, if the claim is registered with it.
    """

    claim: Claim
    changed: Factors = ()
    version: int | None = None

    @property
    def call(self) -> MeasureCall:
        """The call that measures its effects."""
        assert self.claim.measure is not None
        keywords = tuple((factor, value) for factor, value in self.changed if not is_training_factor(factor))
        return MeasureCall(self.claim.measure, keywords, version=self.version)


def claim_variants(claim: Claim, sensitivity: bool) -> list[ClaimVariant]:
    """The claim, its rivals, and the cells of all of them, which stand alone, so that no headline hangs on them."""
    asked, versions = (claim, *claim.rivals), registered_versions(claim)
    questions = [ClaimVariant(claim=one, version=versions.get(one.id)) for one in asked]
    for one in asked if sensitivity else ():
        alone = stand_alone(one)
        for factor, value in [(factor, value) for factor, values in one.factors.items() for value in values]:
            questions.append(_vary(alone, ((factor, value),), versions.get(one.id)))
    return questions


def claim_universes(claim: Claim) -> list[tuple[Combination, ClaimVariant]]:
    """The combinations of a claim's choices, each with the question that is measured for it."""
    version, alone = registered_versions(claim).get(claim.id), stand_alone(claim)
    return [(each, _vary(alone, each.changed, version)) for each in combinations(claim)]


def _vary(claim: Claim, changed: Factors, version: int | None) -> ClaimVariant:
    """A claim with factors changed, about other configurations where training is."""
    for factor, value in changed:
        claim = with_configurations(claim, factor, value) if is_training_factor(factor) else claim
    return ClaimVariant(claim=claim, changed=changed, version=version)


def stand_alone(claim: Claim) -> Claim:
    """The claim without rivals and factors, that needs 16 replicates and on which no headline hangs."""
    return replace(claim, n_replicates=MIN_REPLICATES, headline=False, rivals=(), factors={}, choices={})


def with_recipe(claim: Claim, recipe: str | None) -> Claim | None:
    """The claim about models of a recipe; None if it means nothing there, as it does not vary the recipe itself.

    Under another recipe than its own it stands alone, and no headline hangs on it.
    """
    if recipe is None or claim.recipe in ("", recipe):
        return claim
    if recipe not in claim.factors.get("recipe", ()):
        return None
    moved = with_configurations(claim, "recipe", recipe)
    alone = {"n_replicates": MIN_REPLICATES, "headline": False}
    return replace(moved, rivals=tuple(replace(rival, **alone) for rival in moved.rivals), **alone)


def with_configurations(claim: Claim, field: str, value: Any) -> Claim:
    """The claim about other configurations, and its rivals; what varies the same factor is dropped.

    Controls that are made from its configurations, such as untrained models and planted trajectories, are made from the
    others, with their sizes and checkpoints.
    """
    return replace(
        claim,
        units={name: unit.changed(field, value) for name, unit in claim.units.items()},
        factors={name: values for name, values in claim.factors.items() if name != field},
        controls=tuple(
            replace(control, plant=_replace_bound(control.plant, field, value)) for control in claim.controls
        ),
        rivals=tuple(with_configurations(rival, field, value) for rival in claim.rivals),
    )


def _replace_bound(given: Any, field: str, value: Any) -> Any:
    """The value that `partial` binds to a function, with every configuration in it changed."""
    match given:
        case Configuration():
            return given.changed(field, value)
        case partial():
            args, keywords = _replace_bound((given.args, given.keywords), field, value)
            return partial(given.func, *args, **keywords)
        case dict():
            return {name: _replace_bound(each, field, value) for name, each in given.items()}
        case tuple():
            return tuple(_replace_bound(each, field, value) for each in given)
    return given


def check_measurable(claim: Claim) -> None:
    """Refuse a claim without a measure, of a broken system, or with functions that their names do not identify.

    Results are kept, and workers are sent functions, by name.
    """
    if claim.measure is None:
        raise InputError(f"claim {claim.id} has no measure, so nothing can be measured for it")
    for asked in (claim, *claim.rivals):
        for what, function in functions_of(asked).items():
            check_named(f"{what} of claim {asked.id}", function)
        for name, values in asked.factors.items():
            check_key(f"factor {name} of claim {asked.id}", values)
    for module in modules_of(claim.measure):
        guests.check_importable(module)
