"""From effects of replicates to intervals and p: one function per quantifier, one p for it and one against it.

`most` is the exact binomial test of a share of one half. An effect at the margin is counted on neither side, nor is one
that prompts shared by all replicates may have carried over it. The share has Clopper and Pearson's exact interval
(Biometrika 1934).

`every` and `exists` are mirror images. That *all* seeds have an effect can be refuted by one and proved by none: n of n
shows that the share is above one half (p = 2^-n), and its exact lower bound, .79 for 16 of 16, how far above.
One exception refutes it only if that replicate's own error rules out that it clears the margin. Each of n replicates
could be that exception by chance, so its p is multiplied by n (Bonferroni). A majority that fails refutes it too, also
where the error of a single effect is not known; where both can be tested, the smaller p counts, twice.

`mean` compares the studentised mean with the margin. `equivalence` is two one-sided tests (Schuirmann 1987): the mean
lies below the upper end *and* above the lower one; that no effect was found is no evidence that there is none.

The studentised bootstrap (Efron 1981; Davison & Hinkley 1997, section 5.2) collects over resamples of the data the root
t* = (mean* - mean) / error*, and the interval is mean - t*_high · error to mean - t*_low · error. With 16 replicates
whose effects are exponentially distributed, a nominal 2.5 % of false alarms is 8 to 9 % on the side of the long tail
for percentile intervals and for Student's t. For BCa it is 6 to 7 %, and 4 % here. With heavy tails on both sides the
bootstrap is the worse one (3.5 %) and t the better (1.5 %). So the more cautious of the two counts: neither side is
ever narrower than Student's. A resample that leaves out the only deviating replicate has hardly an error of its
own, so error* is at least 0.3 of the error; that alone changes none of these rates.

Replicates that were begun and are not known (`n_left_out`) may be missing because of what they would have shown. In a
count they stand on the side against the decision; a mean is not decided without them.

Two limits remain, beside the verdict: with 16 lognormal effects a nominal .5 % of false alarms is 3.7 % on the
side of the long tail (`SKEWED`), and a kind of replicate so rare that none is in the sample is seen by no method: of
sixteen effects of 1 with one in sixteen at -15, whose mean is 0, a third are found to have a mean above 0. Where
replicates fall into kinds, ask for a share and not for a mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy import stats

from mnemoscope.claims.claim import Criterion, Quantifier, subtract_bound
from mnemoscope.claims.evidence import Sample, signed_ratio
from mnemoscope.core.seeding import stream_seed

LEVEL = 0.005
"""Error rate of one verdict, in each direction."""
CONFIDENCE = 0.95
SKEWED = 1.0
"""Skewness from which on a mean is decided wrongly more often than its p says."""
ENOUGH_POWER = 0.8
"""The share of decisions that should come about for the power that is shown."""
_FLOOR = 0.3
_CHUNK = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A closed interval of confidence `CONFIDENCE`, half of the error on either side."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}"


@cache
def share_interval(n_clear: int, n: int) -> Interval:
    """Clopper and Pearson's interval of a share; 0 to 1 without replicates."""
    if n == 0:
        return Interval(low=0.0, high=1.0)
    bounds = stats.binomtest(n_clear, n).proportion_ci(CONFIDENCE, method="exact")
    return Interval(low=float(bounds.low), high=float(bounds.high))


@dataclass(frozen=True, kw_only=True, eq=False)
class Average:
    """A mean over replicates with its error and the roots t* of resamples; no roots where no error can be had."""

    mean: float
    error: float
    roots: Float[np.ndarray, " resample"]
    n: int

    @property
    def interval(self) -> Interval:
        """The interval of the mean; everything where no error can be had."""
        if not len(self.roots):
            return Interval(low=-np.inf, high=np.inf)
        tail = (1 - CONFIDENCE) / 2
        student = float(stats.t.ppf(1 - tail, self.n - 1))
        low, high = np.quantile(self.roots, [tail, 1 - tail]).tolist()
        return Interval(
            low=self.mean - max(high, student) * self.error, high=self.mean - min(low, -student) * self.error
        )

    def p_above(self, bound: float) -> float:
        """P against "the mean is at most `bound`"."""
        return self._p(bound, 1)

    def p_below(self, bound: float) -> float:
        """P against "the mean is at least `bound`"."""
        return self._p(bound, -1)

    def _p(self, bound: float, side: int) -> float:
        if not len(self.roots):
            return 1.0
        t = side * float(signed_ratio(subtract_bound(np.array([self.mean]), bound), np.array([self.error]))[0])
        resampled = (1 + np.count_nonzero(side * self.roots >= t)) / (1 + len(self.roots))
        return max(float(stats.t.sf(t, self.n - 1)), float(resampled))


def studentised(sample: Sample, *, seed: int, n_resamples: int) -> Average:
    """Mean effect of replicates, studentised.

    Replicates are resampled, and prompts within them: each replicate's own ones apart, shared ones once for all of
    them, enumerated ones not at all.
    """
    n, effects = len(sample), sample.effects
    mean = float(effects.mean()) if n else float("nan")
    if n < 2 or not np.isfinite(effects).all():
        return Average(mean=mean, error=float("nan"), roots=np.empty(0), n=n)
    crossed = sample.prompts == "shared"
    values = sample.values if crossed or sample.prompts == "own" else effects[:, None]
    error = float(_crossed_error(values)) if crossed else float(effects.std(ddof=1) / n**0.5)
    rng = np.random.default_rng(stream_seed(seed, "bootstrap"))
    draw = _resample_crossed if crossed else _resample_nested
    size = max(1, _CHUNK // values.size)
    chunks = [draw(values, min(size, n_resamples - start), rng) for start in range(0, n_resamples, size)]
    means, errors = np.concatenate(chunks, axis=1)
    roots = signed_ratio(means - mean, np.maximum(errors, _FLOOR * error))
    return Average(mean=mean, error=error, roots=roots, n=n)


def _resample_nested(
    values: Float[np.ndarray, "replicate prompt"], size: int, rng: np.random.Generator
) -> Float[np.ndarray, "2 resample"]:
    """Means and their errors; prompts are drawn anew for each replicate drawn."""
    n, n_prompts = values.shape
    chosen = rng.integers(n, size=(size, n))
    if n_prompts == 1:
        effects = values[chosen, 0]
    else:
        effects = values[chosen[..., None], rng.integers(n_prompts, size=(size, n, n_prompts))].mean(-1)
    return np.stack([effects.mean(1), effects.std(1, ddof=1) / n**0.5])


def _resample_crossed(
    values: Float[np.ndarray, "replicate prompt"], size: int, rng: np.random.Generator
) -> Float[np.ndarray, "2 resample"]:
    """Means and their errors; every replicate drawn sees the same drawn prompts."""
    n, n_prompts = values.shape
    rows = rng.multinomial(n, np.full(n, 1 / n), size)
    columns = rng.multinomial(n_prompts, np.full(n_prompts, 1 / n_prompts), size)
    effects, prompts = columns @ values.T / n_prompts, rows @ values / n
    mean = (rows * effects).sum(1) / n
    between_rows = (rows * (effects - mean[:, None]) ** 2).sum(1) / (n - 1)
    between_columns = (columns * (prompts - mean[:, None]) ** 2).sum(1) / (n_prompts - 1)
    return np.stack([mean, np.sqrt(between_rows / n + between_columns / n_prompts)])


def _crossed_error(values: Float[np.ndarray, "replicate prompt"]) -> float:
    """Error of the mean when replicates and prompts are both drawn; counts what only the two together do twice."""
    n, n_prompts = values.shape
    return (values.mean(1).var(ddof=1) / n + values.mean(0).var(ddof=1) / n_prompts) ** 0.5


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
    slack = part.slack(sample.effects)
    return Decision(
        p_support=_p_majority(slack > sample.shared_prompt_error, sample.n_left_out),
        p_refute=_p_majority(slack < -sample.shared_prompt_error, sample.n_left_out),
        remark=_describe_undecided(slack, sample.shared_prompt_error),
        power=power_of_majority(len(slack) + sample.n_left_out),
    )


def every(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """All replicates clear the margin."""
    slack, own = part.slack(sample.effects), sample.p_fails(part)
    n = len(slack)
    if (slack > 0).all():
        undecided = _describe_undecided(slack, sample.shared_prompt_error)
        remark = undecided or f"which means a share of at least {share_interval(n, n).low:.2f}"
    else:
        remark = _describe_clearest(sample, own, "is the clearest exception")
    return Decision(
        p_support=_p_all(slack > sample.shared_prompt_error, sample.n_left_out),
        p_refute=_p_any_or_majority(sample, own, slack < -sample.shared_prompt_error),
        remark=remark,
    )


def exists(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """At least one replicate clears the margin."""
    slack, own = part.slack(sample.effects), sample.p_clears(part)
    n = len(slack)
    if (slack < 0).all():
        undecided = _describe_undecided(slack, sample.shared_prompt_error)
        remark = undecided or f"which means a share of at most {share_interval(0, n).high:.2f}"
    else:
        remark = _describe_clearest(sample, own, "is the clearest case")
    return Decision(
        p_support=_p_any_or_majority(sample, own, slack > sample.shared_prompt_error),
        p_refute=_p_all(slack < -sample.shared_prompt_error, sample.n_left_out),
        remark=remark,
    )


def mean(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """The mean clears the margin."""
    above, below = over_replicates.p_above(part.margin), over_replicates.p_below(part.margin)
    support, refute = (above, below) if part.direction == "above" else (below, above)
    return _decide_mean(sample, part, over_replicates, support, refute)


def equivalence(sample: Sample, part: Criterion, over_replicates: Average) -> Decision:
    """The mean lies within the margin on either side of 0."""
    support = max(over_replicates.p_above(-part.margin), over_replicates.p_below(part.margin))
    refute = min(1.0, 2 * min(over_replicates.p_above(part.margin), over_replicates.p_below(-part.margin)))
    return _decide_mean(sample, part, over_replicates, support, refute)


def decide_jointly(samples: Sequence[Sample], parts: Sequence[Criterion]) -> Decision | None:
    """The decision whether all parts that are counted over replicates hold in the same ones; None with fewer than two.

    Each may hold in most replicates, and all of them together in none. Take k parts that all lie at their margins, and
    so neither hold nor fail. Some part seems to fail in a share 1 - 2^-k of the replicates: more have to fail.
    """
    counted = [
        (part.slack(sample.effects), sample.shared_prompt_error)
        for sample, part in zip(samples, parts, strict=True)
        if part.quantifier in ("most", "every")
    ]
    if len(counted) < 2:
        return None
    n_left_out = samples[0].n_left_out
    hold = np.all([slack > error for slack, error in counted], axis=0)
    fail = np.any([slack < -error for slack, error in counted], axis=0)
    count = _p_all if all(part.quantifier == "every" for part in parts) else _p_majority
    return Decision(
        p_support=count(hold, n_left_out),
        p_refute=_p_majority(fail, n_left_out, share=1 - 0.5 ** len(counted)),
        power=power_of_majority(len(hold) + n_left_out),
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


def _p_majority(hits: np.ndarray, n_left_out: int, share: float = 0.5) -> float:
    """Exact p against "at most this share of them"; those left out are no hits."""
    return float(stats.binomtest(int(hits.sum()), len(hits) + n_left_out, share, alternative="greater").pvalue)


def _p_all(hits: np.ndarray, n_left_out: int) -> float:
    """The same where nothing but n of n will do."""
    return _p_majority(hits, 0) if hits.all() and not n_left_out else 1.0


def _p_any(own: Float[np.ndarray, " replicate"], n_left_out: int) -> float:
    """P against "none of them", from the p of each."""
    return min(1.0, (len(own) + n_left_out) * float(own.min()))


def _p_any_or_majority(sample: Sample, own: Float[np.ndarray, " replicate"], hits: np.ndarray) -> float:
    """P against "none of them": from the p of each, from their number, or from the smaller of both, twice."""
    majority = _p_majority(hits, sample.n_left_out)
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


def _describe_undecided(slack: Float[np.ndarray, " replicate"], shared_prompt_error: float) -> str:
    """The number of replicates that do not count, because they share their prompts."""
    n_undecided = int(((slack != 0) & (np.abs(slack) <= shared_prompt_error)).sum())
    return (
        f"{n_undecided} of them so near the margin that the choice of prompts could explain it" if n_undecided else ""
    )


def _decide_mean(sample: Sample, part: Criterion, over: Average, support: float, refute: float) -> Decision:
    """The p that a mean gives; none while replicates are left out, whose effects could be anything."""
    if sample.n_left_out:
        support = refute = 1.0
    remark, power = f"and the mean is {over.mean:.3g} ({over.interval})", ""
    if len(over.roots):
        detected = (stats.t.isf(LEVEL, over.n - 1) + stats.t.ppf(ENOUGH_POWER, over.n - 1)) * over.error
        power = f"{over.n} decide four times in five where the mean lies {detected:.2g} or more from the margin"
        remark += _unseen_replicates(part, over) + _skewed(sample.effects)
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


def _skewed(effects: Float[np.ndarray, " replicate"]) -> str:
    if effects.std() == 0 or abs(skewness := float(stats.skew(effects, bias=False))) <= SKEWED:
        return ""
    return f"; effects are skewed ({skewness:.1f}), so that it may be decided wrongly in 4 % where .5 % are meant"
