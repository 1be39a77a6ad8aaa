r"""How clearly two parts divide two skills between them, in numbers whose sign is the answer.

From what removing each part, and both, costs each skill. With M the cost above which a skill counts as needing the
part, s and t the skills, over both assignments (a, b) of the parts and both orders of the skills:

    double    = max of min(cost[a, s] - M, M - cost[a, t], cost[b, t] - M, M - cost[b, s])
    single    = max of min(cost[a, s] - M, cost[a, t] - M, cost[b, s] - M, M - cost[b, t])
    both      = min of all four costs - M
    redundant = min(M - each cost, cost of removing both parts on each skill - M)

Above 0: each part is needed for one skill only, not the same one (Teuber 1955, "Physiological psychology"); one part
serves both skills and the other one of them; both parts serve both skills; either part can stand in for the other. At
most one of them is above 0. `ablation.dissociation` gives words for these, with intervals over sequences.

It shows how far the costs are from the border of each pattern. It does not show that a part computes a skill by itself.
"""

from itertools import product

import numpy as np
import xarray as xr

from mnemoscope.core.errors import InputError, in_range


def dissociation_margins(cost: xr.DataArray, joint: xr.DataArray, *, margin: float = 0.25) -> dict[str, float]:
    """The distance of the costs from the border of each pattern, in their unit; positive where the pattern holds.

    Args:
        cost: Of removing each of two parts, over (component, skill) with two skills.
        joint: Of removing both together, over the same skills.
        margin: Cost above which a skill needs a part, in (0, 1).

    Returns:
        `double`, `single`, `both` and `redundant`.

    Raises:
        InputError: There are not two components and two skills.
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
