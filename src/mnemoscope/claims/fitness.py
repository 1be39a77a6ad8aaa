"""Refusals of `dev register`: a claim that cannot lose, or whose controls show that its measure does not work.

Registered is only what can be judged: a margin with its reason, a negative control, and controls of which the first
case does what it must. A positive control that misses the criteria says that nothing could meet them, and a negative
one that meets them, that everything does. *Does not show* that a control is a good one: a case that differs from the
claim in everything is missed by any measure.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope.claims.claim import Claim, Control
from mnemoscope.core.errors import InputError

Kept = Mapping[str, Mapping[str, Any]]
"""By control and effect one number; of several their size, how many are finite, and mean, smallest and largest."""


def check_fitness(claim: Claim, values: Mapping[str, Kept]) -> None:
    """Refuse a claim that is not fit to be registered, and its rivals.

    Args:
        claim: The claim.
        values: What the measures gave on the first case of each control, by id of the claim and of its rivals.

    Raises:
        InputError: No negative control, no reason for the margin, or a control that does not do what it must.
    """
    for one in (claim, *claim.rivals):
        if not any(control.kind == "negative" for control in one.controls):
            raise InputError(
                f"claim {one.id} has no negative control, so that nothing shows that it can fail; name a case of which "
                "it is not true, such as untrained models"
            )
        if one.explanation is None:
            raise InputError(
                f"claim {one.id} gives no reason for its margin; give it an explanation, whose margins say why"
            )
        for control in one.controls:
            _check_control(one, control, values.get(one.id, {}).get(control.name, {}))


def _check_control(claim: Claim, control: Control, values: Mapping[str, Any]) -> None:
    """Refuse a control whose first case, so far as its effects were measured, does not do what it must."""
    if control.tolerated or not all(part.name in values for part in claim.criteria):
        return
    effects = {part.name: _mean(values[part.name]) for part in claim.criteria}
    clear = [bool(part.slack(np.array(effects[part.name])) > 0) for part in claim.criteria]
    holds = (all if claim.joined == "all" else any)(clear)
    if holds == (control.kind == "positive"):
        return
    measured = ", ".join(f"{part.name} {effects[part.name]:.3g} ({part.wording})" for part in claim.criteria)
    must = "does not meet the criterion, and it must" if control.kind == "positive" else "meets the criterion too"
    raise InputError(f"{control.kind} control {control.name} of claim {claim.id} {must}: {measured}; mend the measure")


def _mean(numbers: list[float | str]) -> float:
    """The mean effect of a case, in the form in which a registration keeps it; NaN where no number is finite."""
    return float(numbers[0]) if len(numbers) == 1 else float(numbers[2]) if len(numbers) > 2 else float("nan")
