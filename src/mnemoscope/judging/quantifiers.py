"""From effects of replicates to a decision: one function a quantifier, one p for it and one against it.

`most` is the exact binomial test of a share of one half. An effect at the margin is counted on neither side, nor is one
that prompts shared by all replicates may have carried over it.

`every` and `exists` are mirror images. That *all* seeds have an effect can be refuted by one and proved by none: n of n
says that the share is above one half (p = 2^-n), and its exact lower bound, .79 for 16 of 16, says how much is known.
One exception refutes it only if that replicate's own error rules out that it clears the margin. Each of n replicates
could be that exception by chance, so its p is multiplied by n (Bonferroni).

`mean` compares the studentised mean (`core.intervals`) with the margin. `equivalence` is two one-sided tests
(Schuirmann 1987): the mean lies below the upper end *and* above the lower one. That no effect was found is none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from mnemoscope.judging.criteria import Criterion, Quantifier
from mnemoscope.judging.intervals import Average, share_interval
from mnemoscope.judging.sample import Sample


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a quantifier makes of a sample.

    Attributes:
        p_support: Against "the claim is false".
        p_refute: Against "the claim is true".
        remark: What the numbers mean beyond the count, or nothing.
    """

    p_support: float
    p_refute: float
    remark: str = ""


def most(sample: Sample, part: Criterion, average: Average) -> Decision:
    """More than half of the replicates clear the margin."""
    slack = part.slack(sample.effects)
    return Decision(
        p_support=_p_majority(slack > sample.shared_prompt_error),
        p_refute=_p_majority(slack < -sample.shared_prompt_error),
        remark=_prompts_doubted(slack, sample.shared_prompt_error),
    )


def every(sample: Sample, part: Criterion, average: Average) -> Decision:
    """All replicates clear the margin."""
    slack, own = part.slack(sample.effects), sample.p_fails(part)
    n = len(slack)
    if (slack > 0).all():
        doubted = _prompts_doubted(slack, sample.shared_prompt_error)
        remark = doubted or f"which means a share of at least {share_interval(n, n).low:.2f}"
    else:
        remark = _clearest(sample, own, "is the clearest exception")
    return Decision(p_support=_p_all(slack > sample.shared_prompt_error), p_refute=_p_any(own), remark=remark)


def exists(sample: Sample, part: Criterion, average: Average) -> Decision:
    """At least one replicate clears the margin."""
    slack, own = part.slack(sample.effects), sample.p_clears(part)
    n = len(slack)
    if (slack < 0).all():
        doubted = _prompts_doubted(slack, sample.shared_prompt_error)
        remark = doubted or f"which means a share of at most {share_interval(0, n).high:.2f}"
    else:
        remark = _clearest(sample, own, "is the clearest case")
    return Decision(p_support=_p_any(own), p_refute=_p_all(slack < -sample.shared_prompt_error), remark=remark)


def mean(sample: Sample, part: Criterion, average: Average) -> Decision:
    """The mean clears the margin."""
    above, below = average.p_above(part.margin), average.p_below(part.margin)
    support, refute = (above, below) if part.direction == "above" else (below, above)
    return Decision(p_support=support, p_refute=refute, remark=_about_mean(average))


def equivalence(sample: Sample, part: Criterion, average: Average) -> Decision:
    """The mean lies within the margin on either side of 0."""
    support = max(average.p_above(-part.margin), average.p_below(part.margin))
    refute = min(1.0, 2 * min(average.p_above(part.margin), average.p_below(-part.margin)))
    return Decision(p_support=support, p_refute=refute, remark=_about_mean(average))


QUANTIFIERS: Mapping[Quantifier, Callable[[Sample, Criterion, Average], Decision]] = {
    "most": most,
    "every": every,
    "exists": exists,
    "mean": mean,
    "equivalence": equivalence,
}


def _p_majority(hits: np.ndarray) -> float:
    """Exact p against "at most half of them"."""
    return float(stats.binomtest(int(hits.sum()), len(hits), alternative="greater").pvalue)


def _p_all(hits: np.ndarray) -> float:
    """The same where nothing but n of n will do."""
    return _p_majority(hits) if hits.all() else 1.0


def _p_any(own: Float[np.ndarray, " replicate"]) -> float:
    """P against "none of them", from the p of each."""
    return min(1.0, len(own) * float(own.min()))


def _clearest(sample: Sample, own: Float[np.ndarray, " replicate"], what: str) -> str:
    """The replicate on which the decision hangs."""
    if sample.prompts is None:
        return "and how sure any one of them is, is not known"
    i = int(own.argmin())
    return f"and {sample.labels[i]} {what} ({sample.effects[i]:.3g}, p = {_p_any(own):.2g})"


def _prompts_doubted(slack: Float[np.ndarray, " replicate"], shared_prompt_error: float) -> str:
    """How many replicates do not count, because they share their prompts."""
    n_doubted = int(((slack != 0) & (np.abs(slack) <= shared_prompt_error)).sum())
    return f"{n_doubted} of them so near the margin that the choice of prompts could explain it" if n_doubted else ""


def _about_mean(average: Average) -> str:
    return f"and the mean is {average.mean:.3g} ({average.interval})"
