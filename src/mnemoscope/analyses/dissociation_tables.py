r"""The dissociation table of neuropsychology: a test of whether skills are divided among components.

From an ablation over (component, skill): removing a component *costs* a skill if accuracy falls by more than the
margin, and *spares* it if it falls by less; where the interval of the drop holds the margin, the cell is undecided. A
component is selective for a if removing it costs a and spares b. Two skills are dissociated

- doubly, if one component is selective for the first and another one for the second (Teuber, 1955);
- singly, if that holds in one direction only;
- not at all, if no component is selective.

Undecided cells that could turn the answer make it undecided, and a skill that the intact model has not learned makes it
`not learned`.

It shows whether removal separates two skills under this kind of ablation. It does not show that a component computes a
skill by itself: a skill that needs two components is dissociated from one that needs one of them. The interval is over
sequences; whether a dissociation holds for a kind of model is a question about seeds.

`dissociation_margins` measures how clearly two parts divide two skills between them, from the cost of removing each
part, and both, on each skill. The sign of each number is the answer. M is the cost above which a skill counts as
needing the part, s and t are the skills. Over both assignments (a, b) of the parts and both orders of the skills:

    double    = max of min(cost[a, s] - M, M - cost[a, t], cost[b, t] - M, M - cost[b, s])
    single    = max of min(cost[a, s] - M, cost[a, t] - M, cost[b, s] - M, M - cost[b, t])
    both      = min of all four costs - M
    redundant = min(M - each cost, cost of removing both parts on each skill - M)

Above 0 they mean, in this order: each part is needed for one skill only, not the same one (Teuber 1955, "Physiological
psychology"); one part serves both skills and the other one of them; both parts serve both skills; either part can stand
in for the other. At most one of them is above 0, by the distance of the costs from the border of its pattern.
"""

from itertools import product

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
        kind: The ablation; None: each of them, along `kind`.
        margin: Drop in accuracy above which removal costs a skill, in (0, 1).
        learned: Accuracy of the intact model from which a skill counts as learned.

    Returns:
        `lost`, the drop in accuracy, and `effect` (`costs`, `spares`, `undecided`) over (component or role, skill), and
        `outcome` (`double`, `single`, `none`, `undecided`, `not learned`) over (skill, other_skill), empty on the
        diagonal.

    Raises:
        InputError: There is one skill only, or no such kind.

    >>> lost = ms.ablate(model, batch, skills=skills, reference=batch, kinds=["mean"])
    >>> ms.analyses.dissociation(lost, kind="mean").outcome.sel(skill="elimination", other_skill="recall").item()
    'single'
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


def dissociation_margins(cost: xr.DataArray, joint: xr.DataArray, *, margin: float = 0.25) -> dict[str, float]:
    """The distance of the costs from the border of each pattern, in their unit; positive where the pattern holds.

    `cost` is what removing each of two parts costs each of two skills, `joint` what removing both together costs. A
    skill needs a part where the cost is above `margin`, in (0, 1). Gives `double`, `single`, `both` and `redundant`.
    Raises InputError where there are not two components and two skills.

    >>> cost = xr.DataArray([[0.9, 0.0], [0.1, 0.8]], coords={"component": ["a", "b"], "skill": ["one", "other"]})
    >>> margins = ms.analyses.dissociation_margins(cost, joint=cost.max("component"))
    >>> round(margins["double"], 2)
    0.15
    """
    in_range("margin", margin, 0, 1)
    if dict(cost.sizes) != {"component": 2, "skill": 2}:
        raise InputError(f"cost must be over two components and two skills; got {dict(cost.sizes)}; select them")
    above = cost.transpose("component", "skill").to_numpy() - margin
    double, single = [], []
    for a, s in product(range(2), repeat=2):
        b, t = 1 - a, 1 - s
        double.append(min(above[a, s], -above[a, t], above[b, t], -above[b, s]))
        single.append(min(above[a, s], above[a, t], above[b, s], -above[b, t]))
    together = joint.sel(skill=cost.skill).to_numpy() - margin
    return {
        "double": float(np.max(double)),
        "single": float(np.max(single)),
        "both": float(above.min()),
        "redundant": float(min(-above.max(), together.min())),
    }
