"""From effects of replicates to intervals and p: one function per quantifier, one p for it and one against it.

`most` is the exact binomial test of a share of one half. An effect at the margin is counted on neither side, nor is one
that its prompts may have carried over it. Prompts of their own carry a replicate at its margin over it with a
probability of `OWN_LEVEL`, so that the share tested is half of that above one half. Prompts that all share carry any of
them with `SHARED_LEVEL`, which adds to the error. The share has Clopper and Pearson's exact interval (Biometrika 1934).

`every` and `exists` are mirror images. That *all* seeds have an effect can be refuted by one and proved by none: n of n
shows that the share is above one half (p = 2^-n), and its exact lower bound, .79 for 16 of 16, how far above.
One exception refutes it only if that replicate's own error rules out that it clears the margin. Each of n replicates
could be that exception by chance, so its p is multiplied by n (Bonferroni). A majority that fails refutes it too, also
where the error of a single effect is not known; where both can be tested, the smaller p counts, twice.

`mean` compares the mean with the margin. `equivalence` is two one-sided tests (Schuirmann 1987): the mean lies below
the upper end *and* above the lower one; that no effect was found is no evidence that there is none. Either takes the
most cautious of three p: that of Student's t, of the studentised bootstrap and of `bounded`, which holds for every
distribution within the bounds of the effect. Without bounds no test of a mean holds: where one effect in sixteen is -15
and the others are 1, the mean is 0, and a third of samples of sixteen have none at -15. There a mean is not decided.

Replicates that were begun and are not known (`n_left_out`) may be missing because of what they would have shown. In a
count they stand on the side against the decision; a mean is not decided without them. Replicates of groups count as
n / (1 + (m - 1) ICC), by groups of m on average and the upper limit of their intraclass correlation; a mean is one of
groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from mnemoscope.claims.bounded import Limits, p_mean_above, p_mean_below
from mnemoscope.claims.criterion import Criterion, Quantifier, subtract_bound
from mnemoscope.claims.evidence import Sample
from mnemoscope.claims.intervals import CONFIDENCE, Average, share_interval
from mnemoscope.core.errors import InputError

LEVEL = 0.005
"""Error rate of one verdict, in each direction."""
ENOUGH_POWER = 0.8
"""The share of decisions that should come about for the power that is shown."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision of a quantifier on a sample: p against "the claim is false" and p against "the claim is true".

    `remark` says what the numbers mean beyond the count, or nothing. `power` says what so many replicates can decide;
    it is shown where they do not decide.
    """

    p_support: float
    p_refute: float
    remark: str = ""
    power: str = ""


def most(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """More than half of the replicates clear the margin."""
    clear, fail = sample.clears(part), sample.fails(part)
    return Decision(
        p_support=_p_majority(sample, clear),
        p_refute=_p_majority(sample, fail),
        remark=_describe_undecided(sample, part, clear | fail),
        power=power_of_majority(_counted(sample, clear)[1]),
    )


def every(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """All replicates clear the margin."""
    clear, fail, own = sample.clears(part), sample.fails(part), sample.p_fails(part)
    n = len(sample)
    if (part.slack(sample.effects) > 0).all():
        undecided = _describe_undecided(sample, part, clear | fail)
        remark = undecided or f"which means a share of at least {share_interval(n, n).low:.2f}"
    else:
        remark = _describe_clearest(sample, own, "is the clearest exception")
    return Decision(p_support=_p_all(sample, clear), p_refute=_p_any_or_majority(sample, own, fail), remark=remark)


def exists(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """At least one replicate clears the margin."""
    clear, fail, own = sample.clears(part), sample.fails(part), sample.p_clears(part)
    n = len(sample)
    if (part.slack(sample.effects) < 0).all():
        undecided = _describe_undecided(sample, part, clear | fail)
        remark = undecided or f"which means a share of at most {share_interval(0, n).high:.2f}"
    else:
        remark = _describe_clearest(sample, own, "is the clearest case")
    return Decision(p_support=_p_any_or_majority(sample, own, clear), p_refute=_p_all(sample, fail), remark=remark)


def mean(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """The mean clears the margin."""
    limits = _limits(sample, part)
    above, below = (_p_mean(over_replicates, side, part.margin, limits) for side in (1, -1))
    support, refute = (above, below) if part.direction == "above" else (below, above)
    return _decide_mean(sample, part, over_replicates, support, refute)


def equivalence(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """The mean lies within the margin on either side of 0."""
    over, limits, margin = over_replicates, _limits(sample, part), part.margin
    support = max(_p_mean(over, 1, -margin, limits), _p_mean(over, -1, margin, limits))
    refute = min(1.0, 2 * min(_p_mean(over, 1, margin, limits), _p_mean(over, -1, -margin, limits)))
    return _decide_mean(sample, part, over, support, refute)


def decide_jointly(samples: Sequence[Sample], parts: Sequence[Criterion]) -> Decision | None:
    """The decision whether all parts that are counted over replicates hold in the same ones; None with fewer than two.

    Each may hold in most replicates, and all of them together in none. A replicate counts against the claim if some
    part fails in it by more than its prompts explain, at the level of one replicate over the number of parts. Where
    errors are not known, parts that fail here and there may lie at their margins: then more replicates have to fail
    than parts would make that fail as often, each apart from the others.
    """
    chosen = [i for i, part in enumerate(parts) if part.quantifier in ("most", "every")]
    if len(chosen) < 2:
        return None
    counted = [(samples[i], parts[i]) for i in chosen]
    hold = np.logical_and.reduce([sample.clears(part) for sample, part in counted])
    failing = np.array([sample.fails(part, len(counted)) for sample, part in counted])
    unknown = [fail.mean() for (sample, _), fail in zip(counted, failing, strict=True) if sample.prompts is None]
    by_noise = 1 - float(np.prod([1 - share for share in unknown])) if len(unknown) > 1 else 0.0
    chance = max(sample.chance for sample, _ in counted)
    first = counted[0][0]
    every_one = all(part.quantifier == "every" for part in parts)
    return Decision(
        p_support=_p_all(first, hold) if every_one else _p_majority(first, hold, chance),
        p_refute=_p_majority(first, np.logical_or.reduce(failing), max(chance, by_noise)),
        power=power_of_majority(_counted(first, hold)[1]),
    )


def replicates_differ(sample: Sample, part: Criterion) -> bool | None:
    """True if replicates differ by more than their prompts explain, by an F test at 5 %; None: that is not known."""
    effects, values = sample.effects, sample.values
    if sample.prompts is None:
        return None
    if sample.prompts == "enumerated":
        return bool(np.ptp(subtract_bound(effects, part.margin)) > 0)
    n, n_prompts = values.shape
    common = values.mean(0) if sample.prompts == "shared" else values.mean()
    rest = values - effects[:, None] - common + values.mean()
    degrees = (n - (sample.prompts == "shared")) * (n_prompts - 1)
    within = float((rest**2).sum()) / degrees
    between = n_prompts * float(effects.var(ddof=1))
    return between > 0 if within == 0 else bool(stats.f.sf(between / within, n - 1, degrees) <= 1 - CONFIDENCE)


QUANTIFIERS: Mapping[Quantifier, Callable[[Sample, Criterion, Average], Decision]] = {
    "most": most,
    "every": every,
    "exists": exists,
    "mean": mean,
    "equivalence": equivalence,
}


def _p_majority(sample: Sample, hits: Bool[np.ndarray, " replicate"], share: float | None = None) -> float:
    """Exact p against "at most half of them", or another share; those left out are no hits."""
    return _p_more(*_counted(sample, hits), share or sample.chance)


@cache
def _p_more(n_hits: int, n: int, share: float) -> float:
    """Exact p of so many hits among n, or more, where each is one with probability `share`."""
    return float(stats.binomtest(n_hits, n, share, alternative="greater").pvalue)


def _p_all(sample: Sample, hits: Bool[np.ndarray, " replicate"]) -> float:
    """The same where nothing but n of n will do."""
    return _p_majority(sample, hits) if hits.all() and not sample.n_left_out else 1.0


def _counted(sample: Sample, hits: Bool[np.ndarray, " replicate"]) -> tuple[int, int]:
    """Hits, and how many there could be; of replicates in groups both are as many as independent ones would be."""
    n_hits, n = int(hits.sum()), len(hits) + sample.n_left_out
    if sample.groups is None or n == 0:
        return n_hits, n
    worth = 1 / (1 + (len(hits) / len(set(sample.groups)) - 1) * intraclass_limit(sample.effects, sample.groups))
    return int(n_hits * worth), int(n * worth)


def intraclass_limit(effects: Float[np.ndarray, " replicate"], groups: Sequence[int]) -> float:
    """Upper limit (one-sided 95 %) of the intraclass correlation of groups, by analysis of variance; 1 if not known."""
    label = np.asarray(groups)
    sizes = np.bincount(label)
    n, n_groups = len(label), len(sizes)
    if n_groups < 2 or n == n_groups or not np.isfinite(effects).all():
        return 1.0
    means = np.bincount(label, effects) / sizes
    within = float(((effects - means[label]) ** 2).sum()) / (n - n_groups)
    between = float((sizes * (means - effects.mean()) ** 2).sum()) / (n_groups - 1)
    if within == 0:
        return 1.0 if between else 0.0
    ratio = between / within / float(stats.f.ppf(1 - CONFIDENCE, n_groups - 1, n - n_groups))
    size = n / n_groups
    return min(1.0, max(0.0, (ratio - 1) / (ratio + size - 1)))


def _p_any(own: Float[np.ndarray, " replicate"], n_left_out: int) -> float:
    """P against "none of them", from the p of each."""
    return min(1.0, (len(own) + n_left_out) * float(own.min()))


def _p_any_or_majority(sample: Sample, own: Float[np.ndarray, " replicate"], hits: np.ndarray) -> float:
    """P against "none of them": from the p of each, from their number, or from the smaller of both, twice."""
    majority = _p_majority(sample, hits)
    return majority if sample.prompts is None else min(1.0, 2 * min(majority, _p_any(own, sample.n_left_out)))


@cache
def power_of_majority(n: int, level: float = LEVEL) -> str:
    """The smallest share of all models at which n replicates decide in four cases of five, in words."""
    counts = np.arange(n + 1)
    decide = np.array([stats.binomtest(int(k), n, alternative="greater").pvalue <= level for k in counts])
    for share in np.arange(0.5, 1.0, 0.01):
        if stats.binom.pmf(counts, n, share)[decide].sum() >= ENOUGH_POWER:
            return f"{n} decide four times in five where the share is {share:.2f} or more, or {1 - share:.2f} or less"
    return f"{n} are too few for any share but 0 and 1"


def _describe_clearest(sample: Sample, own: Float[np.ndarray, " replicate"], what: str) -> str:
    """The replicate that decides, in words."""
    if sample.prompts is None:
        return "and how sure any one of them is, is not known"
    i = int(own.argmin())
    return f"and {sample.labels[i]} {what} ({sample.effects[i]:.3g}, p = {_p_any(own, sample.n_left_out):.2g})"


def _describe_undecided(sample: Sample, part: Criterion, decided: Bool[np.ndarray, " replicate"]) -> str:
    """The number of replicates that count on neither side, and which prompts were taken together."""
    n_undecided = int(((part.slack(sample.effects) != 0) & ~decided).sum())
    remarks = []
    if n_undecided:
        remarks.append(f"{n_undecided} of them so near the margin that the choice of prompts could explain it")
    if sample.block > 1:
        remarks.append(
            f"and prompts that lie beside each other are alike, so that {sample.block} count as one (give their source)"
        )
    return ", ".join(remarks)


def _p_mean(over: Average, side: int, bound: float, limits: Limits) -> float:
    """P against "the mean is not above `bound`" (side 1), or not below it (-1): the most cautious."""
    by_spread, test = (over.p_above, p_mean_above) if side > 0 else (over.p_below, p_mean_below)
    drawn = [each[None] for each in (over.effects, over.by_prompt) if len(each)]
    return max([by_spread(bound), *(float(test(each, bound, limits)[0]) for each in drawn)])


def _limits(sample: Sample, part: Criterion) -> Limits:
    """The limits of an effect; InputError where one lies beyond the bounds that its criterion states."""
    low, high = part.limits
    effects = sample.effects
    if ((low <= effects) & (effects <= high)).all():
        return low, high
    if part.bounds is None:  # those of the unit, which is only a word
        return -np.inf, np.inf
    raise InputError(f"bounds of {part.name} must hold for every effect; got {effects.min():g} to {effects.max():g}")


def _decide_mean(sample: Sample, part: Criterion, over: Average, support: float, refute: float) -> Decision:
    """The p that a mean gives; none while replicates are left out, whose effects could be anything."""
    if sample.n_left_out:
        support = refute = 1.0
    remark, power = f"and the mean is {over.mean:.3g} ({over.interval})", ""
    if len(over.roots):
        power = (
            "a mean is decided where no kind that is not among them could undo it, given the bounds of the effect; "
            "ask for a share (`most`) where it has none or they are wide"
        )
        remark += _unseen_replicates(part, over)
    return Decision(p_support=support, p_refute=refute, remark=remark, power=power)


def _unseen_replicates(part: Criterion, over: Average) -> str:
    """The kind of replicates, absent from the sample, that would bring the mean to the margin."""
    share = 1 - (1 - CONFIDENCE) ** (1 / over.n)
    ends = (-part.margin, part.margin) if part.direction == "within" else (part.margin,)
    end = min(ends, key=lambda end: abs(over.mean - end))
    effect = (end - (1 - share) * over.mean) / share
    return (
        f"; {share:.0%} of all may be of a kind that is not among these {over.n}, and effects of {effect:.2g} would "
        f"bring it to {end:g}"
    )
