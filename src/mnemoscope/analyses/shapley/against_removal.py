r"""The test whether removing one part at a time agrees with Shapley values: the dissociation table read both ways.

Everything is a share of what is lost when all parts are removed, in accuracy. By removal a part *costs* a skill if what
is lost without it alone is more than the margin, and *spares* it if it is less; by value it does if its Shapley value
is. Intervals that hold the margin leave a cell undecided. Both tables are judged by `ablation.dissociation`. Where
parts only add, the two are equal. In general

    lost_i - value_i = 1/2 · sum over j of interaction_ij + higher orders

and the higher orders are 0 if no three parts work together (a 2-additive game, Grabisch 1997). So a part that removal
spares and that has a Shapley value stands in for others, and they for it: *redundancy*, if the sum is below 0. A part
that costs a skill and has little value works together with others only: *synergy*, above 0. A disagreement is called so
where the sum has the sign of the difference and makes up at least half of it, otherwise `higher orders`.

It shows whether a table of single removals can be taken at its word. It does not show which of the two is right:
removal asks what the model as it is cannot do without, the value what a part adds to any set of the others. Shares are
of point estimates of what is lost without all, and missing where that is too little to be shared out.
"""

import numpy as np
import xarray as xr
from scipy import stats

from mnemoscope.analyses.dissociation_tables import LEARNED, MARGIN, Z, dissociation
from mnemoscope.analyses.neurons.effects import MIN_CARRIED, N_ERRORS
from mnemoscope.core.errors import InputError, in_range

MIN_EXPLAINED = 0.5
"""The least share of the difference that pairs must explain."""
_DECIMALS = 9


def removal_agreement(result: xr.Dataset, *, margin: float = MARGIN, learned: float = LEARNED) -> xr.Dataset:
    """Single removals against Shapley values, by skill.

    `result` comes from `shapley`, with interactions; over `component`, or over `role` (`analyses.roles.by_role`). A
    part costs a skill above `margin`, a share in (0, 1) of what all parts carry. A skill counts as learned from the
    accuracy `learned` of the intact model on. Raises InputError where there are no interactions, or one skill only.

    Returns:
        Over (kind, component or role, skill): `lost_share` and `value_share`; `by_removal` and `by_value` (`costs`,
        `spares`, `undecided`); `agreement` (`agrees`, `disagrees`, `undecided`); `pairs`, half the sum of its
        interactions, and `rest`, the higher orders, as shares; `reason` of a disagreement (`redundancy`, `synergy`,
        `higher orders`) and `partner`, the part that it interacts most with in that direction. Over (kind, skill):
        `rank_correlation` (Spearman's) of what is lost with values. Over (kind, skill, other_skill):
        `removal_outcome` and `value_outcome`, as `dissociation` gives them.
    """
    if "interaction" not in result:
        raise InputError("agreement needs interactions; call shapley with interactions=True")
    in_range("margin", margin, 0, 1)
    at = result.sel(metric="accuracy", drop=True)
    part = "role" if "role" in at.dims else "component"
    carried = at.carried.where((at.carried >= MIN_CARRIED) & (at.carried >= N_ERRORS * at.carried_error))
    lost, value = at.lost / carried, at.value / carried
    pairs = at.interaction.sum("other") / 2 / carried
    tables = {
        "removal": _table(at.full, lost, at.lost_error / carried, margin, learned),
        "value": _table(at.full, value, (at.high - at.low) / (2 * Z) / carried, margin, learned),
    }
    by_removal, by_value = (table.effect for table in tables.values())
    undecided = (by_removal == "undecided") | (by_value == "undecided")
    agrees = xr.where(undecided, "undecided", xr.where(by_removal == by_value, "agrees", "disagrees"))
    difference = lost - value
    explained = pairs * np.sign(difference) >= MIN_EXPLAINED * abs(difference)
    reason = xr.where(explained, xr.where(difference < 0, "redundancy", "synergy"), "higher orders")
    disagrees = agrees == "disagrees"
    partner = (at.interaction * np.sign(difference)).fillna(-np.inf).idxmax("other")
    return xr.Dataset(
        {
            "lost_share": lost,
            "value_share": value,
            "by_removal": by_removal,
            "by_value": by_value,
            "agreement": agrees,
            "pairs": pairs,
            "rest": difference - pairs,
            "reason": xr.where(disagrees, reason, ""),
            "partner": xr.where(disagrees & explained, partner, ""),
            "rank_correlation": xr.apply_ufunc(
                _rank_correlation, lost, value, input_core_dims=[[part]] * 2, vectorize=True
            ),
            **{f"{name}_outcome": table.outcome for name, table in tables.items()},
        },
        attrs={"margin": margin, "learned": learned, "unit": "share of what all parts carry, in accuracy"},
    )


def _table(full: xr.DataArray, share: xr.DataArray, error: xr.DataArray, margin: float, learned: float) -> xr.Dataset:
    """The dissociation table in which a part's removal costs a share."""
    table = xr.Dataset({"accuracy": full - share, "accuracy_error": error, "clean_accuracy": full})
    return dissociation(table, margin=margin, learned=learned)


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's; NaN where one of the two is constant, or missing. Rounding does not separate equal values."""
    first, second = first.round(_DECIMALS), second.round(_DECIMALS)
    if np.ptp(first) > 0 and np.ptp(second) > 0:
        return float(np.corrcoef(stats.rankdata(first), stats.rankdata(second))[0, 1])
    return float("nan")
