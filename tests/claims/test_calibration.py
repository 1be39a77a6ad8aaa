"""How often the engine errs, on made-up replicates whose truth is known."""

from collections import Counter

import numpy as np
import pytest

from mnemoscope.claims.claim import Gate
from mnemoscope.claims.intervals import studentised
from mnemoscope.claims.judge import judge
from tests.claims.trials import MARGIN, along_seeds, make_claim, make_evidence

GATE = Gate(statement="learned it", at_least=0.9)
QUANTIFIERS = ("most", "every", "exists", "mean", "equivalence")


def outcomes(quantifier, draw, *, n_trials, gate=None, **fields) -> Counter:
    """Outcomes over trials; `draw` gives effects, or effects and what the gate looks at."""
    claim = make_claim(quantifier, gate=gate, margin=fields.pop("margin", MARGIN), bounds=fields.pop("bounds", None))
    n_resamples = 599 if quantifier in ("mean", "equivalence") else 9
    rng = np.random.default_rng(0)
    count = Counter()
    for trial in range(n_trials):
        effects = draw(rng)
        drawn = {"gate": along_seeds(effects[1])} if gate else {}
        evidence = make_evidence(effects[0] if gate else effects, **drawn, **fields)
        count[judge(claim, evidence, seed=trial, n_resamples=n_resamples).outcome] += 1
    return count


def gated(draw, n_pass=16, n_fail=4):
    """The draw, and some replicates of a huge effect that do not pass the gate."""

    def both(rng):
        effects = draw(rng)
        failed = np.full((n_fail, *effects.shape[1:]), 100.0)
        return np.concatenate([effects, failed]), np.r_[np.ones(n_pass), np.zeros(n_fail)]

    return both


def own_prompts(rng):
    """Every replicate lies at the margin; what is seen beyond it is noise of its prompts."""
    return MARGIN + rng.normal(size=(16, 30))


def shared_prompts(rng):
    """The same, and all replicates err together."""
    return own_prompts(rng) + 3 * rng.normal(size=(1, 30))


def spread(rng):
    """Half of the replicates lie above the margin, and so does none of their mean."""
    return MARGIN + rng.normal(size=16)


NULLS = [
    *((quantifier, own_prompts, "own") for quantifier in QUANTIFIERS),
    *(pytest.param(quantifier, shared_prompts, "shared", marks=pytest.mark.slow) for quantifier in QUANTIFIERS),
    *((quantifier, spread, "enumerated") for quantifier in QUANTIFIERS if quantifier != "exists"),  # there it is true
]


@pytest.mark.drawn(3)
@pytest.mark.thorough
@pytest.mark.parametrize(("quantifier", "draw", "prompts"), NULLS)
def test_of_200_claims_whose_effect_is_exactly_at_the_margin_at_most_4_are_supported(quantifier, draw, prompts):
    count = outcomes(quantifier, gated(draw), n_trials=200, gate=GATE, prompts=prompts)
    assert count["SUPPORTED"] <= 4
    if not (quantifier == "every" and draw is spread):  # there it is false
        assert count["REFUTED"] <= 4


@pytest.mark.thorough
def test_of_200_claims_at_the_lower_end_of_equivalence_at_most_4_are_supported():
    assert outcomes("equivalence", lambda rng: spread(rng) - 2 * MARGIN, n_trials=200)["SUPPORTED"] <= 4


@pytest.mark.thorough
@pytest.mark.parametrize("quantifier", ["most", "every", "mean"])
def test_shuffled_labels_support_nothing(quantifier):
    """A difference between two skills that is large in every seed, after the skills' names were shuffled in each."""

    def draw(rng):
        skills = rng.normal([0.0, 1.0], 0.2, (16, 2))
        shuffled = rng.permuted(skills, axis=1)
        return shuffled[:, 0] - shuffled[:, 1]

    count = outcomes(quantifier, draw, n_trials=200, prompts=None, margin=0.0, bounds=(-3, 3))
    assert count["SUPPORTED"] <= 4
    intact = lambda rng: np.diff(rng.normal([0.0, 1.0], 0.2, (16, 2)))[:, 0]  # noqa: E731
    assert outcomes(quantifier, intact, n_trials=20, prompts=None, margin=0.0, bounds=(-1, 3))["SUPPORTED"] == 20


@pytest.mark.parametrize("quantifier", QUANTIFIERS)
@pytest.mark.parametrize("prompts", ["own", pytest.param("shared", marks=pytest.mark.slow), "enumerated"])
def test_planted_effects_are_supported_and_wrong_ones_refuted(quantifier, prompts):
    # An equivalence within a third of the bounds takes more than 16: .75**16 is above .005.
    n, bounds = (32, (-1.25, 1.25)) if quantifier == "equivalence" else (16, (-0.75, 1.25))

    def planted(effect):
        def draw(rng):
            effects = rng.normal(effect, 0.1, n)
            return effects if prompts == "enumerated" else effects[:, None] + rng.normal(0, 0.3, (n, 40))

        return draw

    clears, fails = (0.0, 3 * MARGIN) if quantifier == "equivalence" else (MARGIN + 0.5, MARGIN - 0.5)
    assert outcomes(quantifier, planted(clears), n_trials=60, prompts=prompts, bounds=bounds)["SUPPORTED"] >= 57
    assert outcomes(quantifier, planted(fails), n_trials=60, prompts=prompts, bounds=bounds)["REFUTED"] >= 57


def rate(draw, mean, *, level, n_trials=2000, prompts="enumerated") -> tuple[float, float]:
    """How often "the mean is above" and "the mean is below" are found although it is the mean."""
    rng = np.random.default_rng(1)
    found = np.zeros(2)
    for trial in range(n_trials):
        values = draw(rng)
        chosen = np.ones(len(values), dtype=bool)
        result = studentised(
            make_evidence(values, prompts=prompts).sample("effect", chosen), seed=trial, n_resamples=999
        )
        found += [result.p_above(mean) <= level, result.p_below(mean) <= level]
    return found[0] / n_trials, found[1] / n_trials


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 32])
@pytest.mark.parametrize(
    ("draw", "mean", "bounds"),
    [
        (lambda rng, n: rng.normal(size=n), 0.0, (0.025, 0.025)),
        (lambda rng, n: rng.random(n), 0.5, (0.025, 0.025)),
        (lambda rng, n: rng.standard_t(3, n), 0.0, (0.025, 0.025)),
        (lambda rng, n: rng.normal(rng.integers(2, size=n), 0.1), 0.5, (0.025, 0.025)),
        (lambda rng, n: rng.exponential(size=n), 1.0, (0.025, 0.05)),  # Student's t: .08 below
    ],
    ids=["normal", "uniform", "heavy tails", "two kinds", "skewed"],
)
def test_error_rates_of_the_mean(n, draw, mean, bounds):
    """Nominal 2.5 %; twice that at most on the side of a long tail. Tolerance: three standard errors of 2000 trials."""
    rates = rate(lambda rng: draw(rng, n), mean, level=0.025)
    for found, bound in zip(rates, bounds, strict=True):
        assert found <= bound + 3 * (bound / 2000) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_error_rates_with_shared_prompts(noise):
    """Taking shared prompts for fixed ones finds an effect ten times too often; resampling them does not."""

    def draw(rng):
        return 0.2 * rng.normal(size=(16, 1)) + rng.normal(size=(1, 20)) + noise * rng.normal(size=(16, 20))

    tolerance = 3 * (0.025 / 2000) ** 0.5
    assert max(rate(draw, 0.0, level=0.025, prompts="shared")) <= 0.025 + tolerance
    if noise < 1:
        assert min(rate(draw, 0.0, level=0.025, n_trials=300)) > 0.2


@pytest.mark.slow
def test_error_rates_of_verdicts():
    """Of 2000 claims at the margin, `LEVEL` are supported; tolerance: three standard errors."""
    for quantifier in ("most", "mean", "equivalence"):
        count = outcomes(quantifier, spread, n_trials=2000)
        assert max(count["SUPPORTED"], count["REFUTED"]) <= 2000 * 0.005 + 3 * (2000 * 0.005) ** 0.5, quantifier
