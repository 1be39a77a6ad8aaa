"""Whether skills are divided among components: the dissociation table of neuropsychology.

From an ablation over (component, skill): removing a component *costs* a skill if accuracy falls by more than the
margin, and *spares* it if it falls by less; where the interval of the drop holds the margin, the cell is undecided. A
component is selective for a if removing it costs a and spares b. Two skills are dissociated

- doubly, if one component is selective for the first and another one for the second (Teuber, 1955);
- singly, if that holds in one direction only;
- not at all, if no component is selective.

Undecided cells that could turn the answer make it undecided, and a skill that the intact model has not learned makes
it `not learned`.

It shows whether removal separates two skills under this kind of ablation. It does not show that a component computes
a skill by itself: a skill that needs two components is dissociated from one that needs one of them. The interval is
over sequences; whether a dissociation holds for a kind of model is a question about seeds.
"""

import numpy as np
import xarray as xr

from mnemoscope.core.errors import InputError, in_range, one_of

MARGIN = 0.25
LEARNED = 0.9
Z = 1.96
"""Half the width of the interval of a drop, in standard errors: 95 %."""

_OUTCOMES = np.array([["none", "undecided", "single"], ["undecided"] * 3, ["single", "undecided", "double"]])


def dissociation(
    ablation: xr.Dataset, *, kind: str | None = None, margin: float = MARGIN, learned: float = LEARNED
) -> xr.Dataset:
    """The dissociation table of an ablation.

    Args:
        ablation: From `ablation.ablate`: over (kind, component, skill) or (kind, role, skill); further
            dimensions, such as seed, are kept.
        kind: Which ablation; none: each of them, along `kind`.
        margin: Drop in accuracy above which removal costs a skill, in (0, 1).
        learned: Accuracy of the intact model from which a skill counts as learned.

    Returns:
        `lost`, the drop in accuracy, and `effect` (`costs`, `spares`, `undecided`) over (component or role, skill), and
        `outcome` (`double`, `single`, `none`, `undecided`, `not learned`) over (skill, other_skill), empty on the
        diagonal.

    Raises:
        InputError: There is one skill only, or no such kind.
    """
    if kind is not None:
        one_of("kind", kind, ablation.kind.values.tolist())
    in_range("margin", margin, 0, 1)
    if ablation.sizes["skill"] < 2:
        raise InputError(f"a dissociation needs two skills; the ablation has {ablation.skill.values.tolist()}")
    at = ablation if kind is None else ablation.sel(kind=kind, drop=True)
    lost = at.clean_accuracy - at.accuracy
    costs, spares = lost - Z * at.accuracy_error > margin, lost + Z * at.accuracy_error < margin
    effect = xr.where(costs, "costs", xr.where(spares, "spares", "undecided"))
    part = "role" if "role" in lost.dims else "component"

    # three-valued: 0 no, 1 perhaps, 2 yes; "and" is the minimum, "some component" the maximum
    cost = xr.where(costs, 2, xr.where(spares, 0, 1))
    selective = np.minimum(cost, (2 - cost).rename(skill="other_skill")).max(part)
    reverse = selective.rename(skill="other_skill", other_skill="skill").transpose(*selective.dims)
    outcome = xr.apply_ufunc(lambda a, b: _OUTCOMES[a, b], selective, reverse)
    has = at.clean_accuracy >= learned
    outcome = xr.where(has & has.rename(skill="other_skill"), outcome, "not learned")
    outcome = xr.where(outcome.skill == outcome.other_skill, "", outcome)
    return xr.Dataset(
        {"lost": lost, "effect": effect, "outcome": outcome},
        attrs={"margin": margin, "learned": learned, "unit": "accuracy"},
    )
