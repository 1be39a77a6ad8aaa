"""An audit of one model: could an effect be chance, and how large is it on prompts that had no part in the choice?

Clusters of prompts are parted at random before anything is looked at. One part *chooses*: every cell gets its mean
effect with an interval, a p-value against a stated null (`auditing.nulls`) and a q-value over all cells that were
tried, by Benjamini and Hochberg (1995) or, whatever the dependence between cells, Benjamini and Yekutieli (2001). Cells
with q up to the rate are *found*: among them the expected share of false ones is at most the rate.

The other part *confirms*. A found cell is confirmed if its effect has the same sign there, with a q-value over the
found cells up to the rate. The effect there is the size that is left: a cell is found because its effect came out
large, so that the effect on the prompts that chose it is too large on average (the winner's curse). On the others the
mean is unbiased and its interval covers as it says, whatever the choice was. An estimate that conditions on the choice
would use all prompts, but needs a distribution of the effects; the split needs none.

*Does not show.* Prompts are no seeds: what holds for one model on other prompts of the same kind need not hold for
another model, or for prompts of another kind. A cell that is not found may have an effect that these prompts cannot
tell from chance. A null that is wrong does not become right by any correction.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from statsmodels.stats.multitest import multipletests

from mnemoscope.analyses.auditing.trial import Null, Result, prepare
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import in_range, one_of

Adjust = Literal["bh", "by"]
ADJUSTED: dict[Adjust, str] = {"bh": "Benjamini and Hochberg", "by": "Benjamini and Yekutieli"}
N_DRAWS = 9999
"""Draws of a null, unless more are needed for the smallest q to reach the rate."""
MOST_DRAWS = 10**5
AT = ("", "held_out_")
"""Variables of the part that chooses, and of the other, begin so."""


@check_arguments
def audit(
    result: Result,
    *,
    null: Null | None = None,
    against: Result | Sequence[Result] | None = None,
    clusters: str | Iterable[Any] | None = None,
    measure: str | None = None,
    adjust: Adjust = "bh",
    rate: float = 0.05,
    held_out: float = 0.5,
    n_draws: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Audit the effects of one model: p, q over all cells, confirmation and size on prompts that did not choose.

    Args:
        result: What `patch`, `patch_edges`, `attribute_edges`, `integrate_edges` or `estimate` returns; what `ablate`,
            `head_scores` or `probe` returns with `per_prompt=True`; or effects of your own along `prompt`. Everything
            that was tried belongs into it, since q-values are over all of its cells.
        null: `signs`, `heads`, `labels` or `controls` (see `auditing.nulls`); None: `labels` for probes, `controls`
            where several results are given to compare with, else `signs`.
        against: The same analysis of another model on the same prompts, such as an untrained one: effects are
            differences from it. Several results of control models or control prompts: their effects are the null.
        clusters: The label of every prompt, or the name of a coordinate along `prompt`: prompts of one label count as
            one observation. None: those that the task names, else only equal prompts are one.
        measure: `accuracy` (the default) or `log_prob` of an ablation.
        adjust: `bh`, or `by`, which holds whatever the dependence between cells.
        rate: The false-discovery rate.
        held_out: The share of clusters that confirm; 0: all choose, and nothing is confirmed.
        n_draws: Draws of the null. None: 9,999, or as many as the smallest q needs, up to 100,000.
        seed: The parts, draws and resamples come from streams of it.

    Returns:
        Over the dimensions of the effects without `prompt`: `effect`, `low`, `high` (95 %), `p`, `q` and `found` on the
        prompts that choose; `held_out_effect`, `held_out_low`, `held_out_high`, `held_out_p` on the others, and for
        found cells `held_out_q` and `confirmed`. Of patches also `whole` and `held_out_whole`, the mean difference
        between clean and corrupted prompts, of which an effect is a share. Attributes name the null, the correction
        and the numbers of clusters and cells; `least_q` is the smallest q that a single cell could have.

    Raises:
        InputError: The result has no prompts, or no such null; or a part has fewer than 6 clusters.

    >>> found = ms.audit(ms.patch(model, pairs, kind="z", over=("layer", "head")))
    >>> found.confirmed.sel(direction="noising", metric="logit_diff").values.tolist()
    [[True, True]]
    """
    return audit_together(
        {"": result},
        null=null,
        against=None if against is None else {"": against},
        clusters=None if clusters is None else {"": clusters},
        measure=measure,
        adjust=adjust,
        rate=rate,
        held_out=held_out,
        n_draws=n_draws,
        seed=seed,
    )[""]


def audit_together(
    results: Mapping[str, Result],
    *,
    null: Null | None = None,
    against: Mapping[str, Result | Sequence[Result]] | None = None,
    clusters: Mapping[str, str | Iterable[Any]] | None = None,
    measure: str | None = None,
    adjust: Adjust = "bh",
    rate: float = 0.05,
    held_out: float = 0.5,
    n_draws: int | None = None,
    seed: int = 0,
) -> dict[str, xr.Dataset]:
    """Audit several results of one model, such as those of its skills; q-values are over the cells of all of them.

    Arguments and results are those of `audit`, by the names of the results.

    >>> values = ms.patch(model, pairs, kind="z", over=("layer", "head"))
    >>> found = ms.analyses.audit_together({"recall": values, "copy": values})
    >>> found["copy"].attrs["n_tests"]
    8
    """
    one_of("adjust", adjust, ADJUSTED)
    in_range("rate", rate, 1e-6, 0.5)
    in_range("held_out", held_out, 0, 0.9)
    if n_draws is not None:
        in_range("n_draws", n_draws, 99, float("inf"))
    trials = {
        name: prepare(
            result,
            null=null,
            against=None if against is None else against[name],
            clusters=None if clusters is None else clusters[name],
            measure=measure,
            held_out=held_out,
            seed=seed,
        )
        for name, result in results.items()
    }
    n_cells = sum(trial.n_cells for trial in trials.values())
    harmonic = sum(1 / i for i in range(1, n_cells + 1)) if adjust == "by" else 1.0
    draws = min(max(N_DRAWS, math.ceil(n_cells * harmonic / rate)), MOST_DRAWS) if n_draws is None else int(n_draws)
    tested = {name: [trial.test(side, draws, seed) for side in (0, 1)] for name, trial in trials.items()}
    q = _adjusted([chosen["p"] for chosen, _ in tested.values()], adjust)
    found = [each <= rate for each in q]
    held_p = [np.where(each, held["p"], np.nan) for each, (_, held) in zip(found, tested.values(), strict=True)]
    held_q = _adjusted(held_p, adjust)
    audits = {}
    for number, (name, trial) in enumerate(trials.items()):
        chosen, held = tested[name]
        same = np.sign(chosen["effect"]) == np.sign(held["effect"])
        variables = {
            **{at + key: values for at, part in zip(AT, tested[name], strict=True) for key, values in part.items()},
            "q": q[number],
            "found": found[number],
            "held_out_q": held_q[number],
            "confirmed": found[number] & same & (held_q[number] <= rate),
        }
        single = trial.least_p(draws) * n_cells * harmonic
        audits[name] = trial.labelled(variables).assign_attrs(
            adjusted=ADJUSTED[adjust], rate=rate, n_tests=n_cells, n_draws=draws, least_q=min(1.0, single)
        )
    return audits


def _adjusted(ps: Sequence[Float[np.ndarray, " cell"]], adjust: Adjust) -> list[Float[np.ndarray, " cell"]]:
    """Q-values over all cells; NaN where there is no p."""
    joined = np.concatenate(ps)
    known = np.isfinite(joined)
    result = np.full(joined.shape, np.nan)
    if known.any():
        result[known] = multipletests(joined[known], method=f"fdr_{adjust}")[1]
    return np.split(result, np.cumsum([len(each) for each in ps])[:-1])
