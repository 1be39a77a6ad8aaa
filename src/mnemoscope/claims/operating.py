"""Operating characteristics of a quantifier: its outcomes in populations whose answer is known.

In a population of share s every replicate clears the margin with probability s: its effect lies a unit beyond the
margin or a unit short of it, and is known without error. All samples that can occur are judged, by `judge` itself, and
weighted with their binomial probability. The table is exact, save for the bootstrap of `mean` and `equivalence`.

It shows how often each outcome occurs; it does not show how the quantifiers perform when effects vary in size, which
matters most for a mean.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import xarray as xr
from scipy import stats

from mnemoscope.claims.claim import MIN_REPLICATES, Claim, Quantifier
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.verdict import Outcome
from mnemoscope.core.errors import InputError, in_range


def operating_characteristics(
    quantifier: Quantifier, shares: Sequence[float], n_replicates: Sequence[int], *, n_resamples: int = 999
) -> xr.DataArray:
    """Probability of each outcome by the share of replicates that clear the margin and by how many are judged.

    `shares` are those in the population, 0 to 1; samples have at least 16 replicates, or InputError is raised.
    `n_resamples` is for the bootstrap. Returns `share n_replicates outcome`; rows add to 1.
    """
    for share in shares:
        in_range("share", share, 0, 1)
    for n in n_replicates:
        if n < MIN_REPLICATES:
            raise InputError(f"n_replicates must be at least {MIN_REPLICATES}; got {n}")
    outcomes = list(get_args(Outcome))
    table = np.zeros((len(shares), len(n_replicates), len(outcomes)))
    for j, n in enumerate(n_replicates):
        weights = stats.binom.pmf(np.arange(n + 1), n, np.asarray(shares, dtype=float)[:, None])
        for n_clear in range(n + 1):
            outcome = _judged(quantifier, n_clear, n, n_resamples)
            table[:, j, outcomes.index(outcome)] += weights[:, n_clear]
    return xr.DataArray(
        table,
        dims=("share", "n_replicates", "outcome"),
        coords={"share": list(shares), "n_replicates": list(n_replicates), "outcome": outcomes},
        name="probability",
        attrs={"quantifier": quantifier, "unit": "probability"},
    )


def _judged(quantifier: Quantifier, n_clear: int, n: int, n_resamples: int) -> Outcome:
    claim = Claim(
        id=quantifier,
        statement=f"planted: {n_clear} of {n}",
        source="operating characteristics",
        quantifier=quantifier,
        margin=1.0,
        direction="within" if quantifier == "equivalence" else "above",
    )
    clears, fails = (0.0, 2.0) if quantifier == "equivalence" else (2.0, 0.0)
    effects = xr.DataArray(np.where(np.arange(n) < n_clear, clears, fails), coords={"seed": np.arange(n)})
    return judge(claim, Evidence(effects=effects, prompts="enumerated"), n_resamples=n_resamples).outcome
