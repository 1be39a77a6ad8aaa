import numpy as np
import pytest
from scipy import stats

from mnemoscope.claims.claim import Criterion
from mnemoscope.claims.intervals import studentised
from mnemoscope.claims.quantifiers import QUANTIFIERS, Decision
from tests.claims.trials import MARGIN, clearing, make_evidence


def decide(quantifier, effects, prompts="enumerated", direction="above", bounds=None) -> Decision:
    effects = np.asarray(effects, dtype=float)
    sample = make_evidence(effects, prompts=prompts).sample("effect", np.ones(len(effects), dtype=bool))
    part = Criterion(name="effect", quantifier=quantifier, margin=MARGIN, direction=direction, bounds=bounds)
    return QUANTIFIERS[quantifier](sample, part, studentised(sample, seed=0, n_resamples=1999))


def noisy(effects, *, scale=0.5, n_prompts=40, seed=0):
    """Effects per prompt whose mean over prompts is exactly the one given."""
    noise = np.random.default_rng(seed).normal(0, scale, (len(effects), n_prompts))
    return np.asarray(effects)[:, None] + noise - noise.mean(1, keepdims=True)


def test_most_is_the_binomial_test():
    decision = decide("most", clearing(13, 16))
    assert decision.p_support == pytest.approx((560 + 120 + 16 + 1) / 2**16)  # 16 over 13, 14, 15, 16
    assert decision.p_refute == pytest.approx(1 - (120 + 16 + 1) / 2**16)
    mirrored = decide("most", -clearing(13, 16) + 2 * MARGIN, direction="below")
    assert (mirrored.p_support, mirrored.p_refute) == (decision.p_support, decision.p_refute)


def test_effects_at_the_margin_count_on_neither_side():
    for quantifier in ("most", "every", "exists", "mean"):
        decision = decide(quantifier, np.full(16, MARGIN))
        assert (decision.p_support, decision.p_refute) == (1, 1), quantifier


def test_every_needs_all_and_says_what_all_means():
    decision = decide("every", clearing(16, 16))
    assert decision.p_support == 2**-16
    assert decision.p_refute == 1
    assert decision.remark == "which means a share of at least 0.79"


def test_one_exception_refutes_every_only_on_its_own_authority():
    effects = clearing(15, 16)
    assert decide("every", effects).p_refute == 0
    assert decide("every", effects, None).p_refute == pytest.approx(1 - 0.5**16)  # one of 16 is no majority
    sure, unsure = (decide("every", noisy(effects, scale=scale), "own") for scale in (0.2, 2.0))
    assert sure.p_refute < 1e-6 < 0.1 < unsure.p_refute
    assert sure.p_support == unsure.p_support == 1
    assert sure.remark.startswith("and seed 15 is the clearest exception (0, p = ")


def test_each_of_sixteen_could_be_the_exception_by_chance():
    values = noisy(clearing(15, 16), scale=0.6)
    own = stats.ttest_1samp(values[15], MARGIN, alternative="less").pvalue
    assert decide("every", values, "own").p_refute == pytest.approx(2 * 16 * own)  # by one, or by a majority


def test_exists_mirrors_every():
    for effects in (clearing(0, 16), clearing(1, 16), noisy(clearing(1, 16), scale=0.6)):
        prompts = "own" if effects.ndim == 2 else "enumerated"
        exists = decide("exists", effects, prompts)
        every = decide("every", 2 * MARGIN - effects, prompts)
        assert exists.p_support == pytest.approx(every.p_refute)
        assert exists.p_refute == pytest.approx(every.p_support)
    assert decide("exists", clearing(0, 16)).remark == "which means a share of at most 0.21"


def test_mean_looks_at_the_mean_and_not_at_the_count():
    few_but_large = np.array([MARGIN - 0.01] * 10 + [MARGIN + 2] * 6)
    assert decide("most", few_but_large).p_refute < 0.25
    assert decide("mean", few_but_large, bounds=(0, 3)).p_support < 0.025
    mirrored = decide("mean", 2 * MARGIN - few_but_large, direction="below", bounds=(-3, 0.5))
    assert mirrored.p_support == decide("mean", 2 * MARGIN - few_but_large, bounds=(-3, 0.5)).p_refute < 0.025
    assert decide("mean", few_but_large).p_support == 1  # an effect without bounds


def test_equivalence_is_not_the_absence_of_an_effect():
    rng = np.random.default_rng(0)
    small, wide, large = (rng.normal(mean, sd, 16) for mean, sd in ((0, 0.05), (0, 1.5), (2 * MARGIN, 0.05)))
    assert decide("equivalence", small, direction="within", bounds=(-0.7, 0.7)).p_support < 0.005
    undecided = decide("equivalence", wide, direction="within", bounds=(-9, 9))
    assert min(undecided.p_support, undecided.p_refute) > 0.05
    for side, bounds in ((1, (-0.1, 0.7)), (-1, (-0.7, 0.1))):
        assert decide("equivalence", side * large, direction="within", bounds=bounds).p_refute < 0.005


def test_what_shared_prompts_may_have_moved_together_is_not_counted():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 25))
    values = MARGIN + 0.1 + common - common.mean() + rng.normal(0, 0.001, (16, 25))
    for quantifier in ("most", "every"):
        assert decide(quantifier, values, "shared").p_support == 1
        assert decide(quantifier, values, "own").p_support == 1  # each is half an error above the margin
        assert decide(quantifier, values + 2, "own").p_support == pytest.approx(0.505**16)
        assert decide(quantifier, values + 2, "shared").p_support == 2**-16
    assert decide("most", values, "shared").remark.startswith("16 of them so near the margin")
    assert decide("exists", values - 0.2, "shared").p_refute == 1
