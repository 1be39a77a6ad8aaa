"""Cases in which a rule that looks right errs: prompts of 0 and 1 or of one source, unlike parts, rare kinds."""

from collections import Counter

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from mnemoscope.claims.claim import Criterion
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.quantifiers import intraclass_limit
from mnemoscope.core.errors import InputError
from tests.claims.trials import MARGIN, along_seeds, make_claim, make_evidence


def outcomes(claim, draw, *, n_trials=200, **fields) -> Counter:
    """Outcomes on evidence that is drawn again and again."""
    rng = np.random.default_rng(0)
    found = (judge(claim, make_evidence(draw(rng), **fields), seed=i, n_resamples=299) for i in range(n_trials))
    return Counter(verdict.outcome for verdict in found)


BOTH = np.array([True, True])


def test_prompts_that_are_all_answered_do_not_show_that_nearly_all_are():
    """Of models that answer .8 of prompts, one in three answers five of five; none has an accuracy above .9."""
    claim = make_claim("exists", margin=0.9)
    count = outcomes(claim, lambda rng: (rng.random((16, 5)) < 0.8).astype(float), prompts="own")
    assert count["SUPPORTED"] == 0
    shown = judge(claim, make_evidence(np.ones((16, 150)), prompts="own"))  # 16 * .9**150 is below .005
    assert shown.outcome == "SUPPORTED"
    constant = make_evidence(np.full((2, 5), 0.95), prompts="own").sample("effect", BOTH)
    assert constant.p_clears(claim.criteria[0]).tolist() == [1, 1]  # an error that nobody knows


def test_the_tail_of_answered_prompts_is_that_of_the_binomial():
    sample = make_evidence(np.r_[np.ones(18), np.zeros(2)][None].repeat(2, 0), prompts="own").sample("effect", BOTH)
    part = Criterion(name="effect", quantifier="exists", margin=0.5)
    by_hand = (190 + 20 + 1) / 2**20  # 18, 19 or 20 of 20
    assert sample.p_clears(part) == pytest.approx([by_hand] * 2)
    below = Criterion(name="effect", quantifier="exists", margin=0.5, direction="below")
    assert sample.p_fails(below) == pytest.approx([by_hand] * 2)


def test_an_infinite_effect_needs_no_error():
    """As where a model gives the answer no probability at all."""
    values = np.full((2, 5), [[np.inf], [2.0]])
    sample = make_evidence(values, prompts="own").sample("effect", BOTH)
    above = Criterion(name="effect", quantifier="exists", margin=0.5)
    assert sample.p_clears(above).tolist() == [0, 1]
    assert sample.p_fails(above).tolist() == [1, 1]


def clustered(rng):
    """24 sources of 5 prompts; what is seen beyond the margin is noise of the sources."""
    return MARGIN + rng.normal(size=(16, 24, 1)).repeat(5, 2).reshape(16, 120) + 0.1 * rng.normal(size=(16, 120))


@pytest.mark.full
def test_prompts_of_one_source_count_once():
    claim, source = make_claim("exists"), np.arange(24).repeat(5)

    def sourced(rng):
        return along_seeds(clustered(rng)).assign_coords(source=("prompt", source))

    def scattered(rng):
        return clustered(rng)[:, rng.permutation(120)]

    assert outcomes(claim, scattered, prompts="own")["SUPPORTED"] >= 50  # as if there were 120, and nothing shows it
    assert outcomes(claim, clustered, prompts="own")["SUPPORTED"] <= 4  # unnamed, side by side
    assert outcomes(claim, sourced, prompts="own")["SUPPORTED"] <= 4


def test_neighbouring_prompts_that_are_alike_count_as_blocks_and_the_reason_says_so():
    rng = np.random.default_rng(0)
    evidence = make_evidence(clustered(rng), prompts="own")
    assert evidence.sample("effect", np.full(16, True)).values.shape == (16, 10)
    reason = judge(make_claim(), evidence).reason
    assert "prompts that lie beside each other are alike, so that 11 count as one (give their source)" in reason
    alone = make_evidence(rng.normal(size=(16, 120)), prompts="own").sample("effect", np.full(16, True))
    assert alone.values.shape == (16, 120)


def test_sources_may_differ_between_replicates_but_not_in_number():
    values = along_seeds(np.arange(12.0).reshape(2, 6))
    sources = (("seed", "prompt"), [[0, 0, 0, 7, 7, 7], [1, 2, 1, 2, 1, 2]])
    evidence = Evidence(effects=values.assign_coords(source=sources), prompts="own")
    sample = evidence.sample("effect", BOTH)
    assert sample.values.tolist() == [[1.0, 4.0], [8.0, 9.0]]
    unequal = values.assign_coords(source=(("seed", "prompt"), [[0, 0, 0, 7, 7, 7], [1, 2, 3, 1, 2, 3]]))
    with pytest.raises(InputError, match=r"as many sources in every seed, two or more; got \[2, 3\]"):
        Evidence(effects=unequal, prompts="own").sample("effect", BOTH)


def test_shared_prompts_cannot_be_averaged_beforehand():
    with pytest.raises(InputError, match="a mean over shared prompts, which hides"):
        make_evidence(np.ones(16), prompts="shared")


PARTS = tuple(Criterion(name=name, quantifier="most", margin=0.5) for name in "abcd")


def unlike_parts(n: int = 32) -> xr.Dataset:
    """Each of four parts fails in a quarter of the seeds, and another one in each quarter."""
    part, seed = np.arange(4)[:, None], np.arange(n)
    values = np.where(seed * 4 // n == part, 0.0, 1.0)
    return xr.Dataset({name: ("seed", row) for name, row in zip("abcd", values, strict=True)}, coords={"seed": seed})


@pytest.mark.parametrize("prompts", ["enumerated", None])
def test_parts_that_never_hold_together_are_refuted(prompts):
    verdict = judge(make_claim(None, parts=PARTS), Evidence(effects=unlike_parts(), prompts=prompts))
    assert verdict.share == 0
    assert verdict.outcome == "REFUTED"
    alone = judge(make_claim(None, parts=PARTS[:1]), Evidence(effects=unlike_parts(), prompts="enumerated"))
    assert alone.outcome == "SUPPORTED"


def test_a_mean_is_not_joined_with_a_count():
    parts = (PARTS[0], Criterion(name="b", quantifier="mean", margin=0.2, bounds=(0, 1)))
    assert judge(make_claim(None, parts=parts), Evidence(effects=unlike_parts(), prompts="enumerated")).outcome == (
        "SUPPORTED"
    )


def test_a_majority_refutes_every_where_single_errors_are_not_known():
    effects = np.r_[np.zeros(15), 1.0]
    assert judge(make_claim("every"), make_evidence(effects, prompts=None)).outcome == "REFUTED"
    assert judge(make_claim("exists"), make_evidence(1 - effects, prompts=None)).outcome == "SUPPORTED"
    assert judge(make_claim("every"), make_evidence(1 - effects, prompts=None)).outcome != "REFUTED"


@pytest.mark.parametrize("prompts", ["own", "shared"])
def test_alike_models_at_the_margin_are_not_called_different(prompts):
    rng = np.random.default_rng(0)
    alike = MARGIN + 0.02 * rng.normal(size=(32, 50))
    verdict = judge(make_claim(), make_evidence(alike, prompts=prompts))
    assert verdict.outcome == "INCONCLUSIVE"
    assert "seeds differ by no more than the error of each explains" in verdict.reason
    two_kinds = alike + np.where(np.arange(32) % 2, 0.1, -0.1)[:, None]
    assert judge(make_claim(), make_evidence(two_kinds, prompts=prompts)).outcome == "MIXED"


def test_whether_models_differ_is_left_open_where_their_errors_are_not_known():
    verdict = judge(make_claim(), make_evidence(MARGIN + np.resize([0.1, -0.1], 32), prompts=None))
    assert verdict.outcome == "MIXED"
    assert "differ, or all lie near the margin (their errors are not known)" in verdict.reason


def test_what_so_many_seeds_could_decide_is_said_where_they_do_not():
    """16 decide with 14 hits or more: P is .8 at a share of .91 (.809) and not at .90 (.789)."""
    verdict = judge(make_claim(), make_evidence(np.where(np.arange(16) < 13, 1.0, 0.0)))
    assert verdict.outcome == "INCONCLUSIVE"
    assert "16 decide four times in five where the share is 0.91 or more, or 0.09 or less" in verdict.reason


def test_a_mean_says_which_unseen_kind_would_undo_it():
    """Of 16, a kind of 17 % may be missing: .829 * 1 + .171 x = .25 where x is -3.4."""
    rng = np.random.default_rng(0)
    effects = rng.normal(1, 0.1, 16)
    verdict = judge(make_claim("mean", bounds=(0, 2)), make_evidence(effects - effects.mean() + 1))
    assert verdict.outcome == "SUPPORTED"
    assert (
        "17% of all may be of a kind that is not among these 16, and effects of -3.4 would bring it to"
        in verdict.reason
    )
    unbounded = judge(make_claim("mean"), make_evidence(effects))
    assert unbounded.outcome == "INCONCLUSIVE"
    assert "ask for a share (`most`) where it has none" in unbounded.reason


def test_what_all_replicates_share_is_said():
    shared = judge(make_claim(), make_evidence(np.ones(16), shared=("initial weights", "facts")))
    assert shared.outcome == "SUPPORTED"
    assert "all seeds share initial weights, facts, so it is about draws of what they do not share" in shared.reason
    assert "share initial" not in judge(make_claim(), make_evidence(np.ones(16))).reason


def in_groups(values, group) -> Evidence:
    return make_evidence(along_seeds(values).assign_coords(group=("seed", group)))


def test_replicates_that_share_something_count_as_fewer():
    """Twice 16 that are equal in pairs are 16, of which 15 clear the margin."""
    values = np.random.default_rng(0).normal(1, 0.1, 16)
    values[7] = 0.0
    pairs = in_groups(values.repeat(2), np.arange(16).repeat(2))
    assert judge(make_claim(), pairs).p_support == pytest.approx(17 / 2**16)
    one_each = in_groups(values.repeat(2), np.arange(32))
    assert judge(make_claim(), one_each).p_support == judge(make_claim(), make_evidence(values.repeat(2))).p_support
    alone = in_groups(values, np.zeros(16, dtype=int))  # all of one group: nothing shows how much they share
    assert judge(make_claim(), alone).outcome == "INCONCLUSIVE"


def test_a_mean_over_groups_is_one_of_groups():
    values = np.random.default_rng(0).normal(1, 0.1, 16)
    claim = make_claim("mean", bounds=(0, 2))
    doubled = judge(claim, in_groups(values.repeat(2), np.arange(16).repeat(2)))
    assert doubled.effect_interval == judge(claim, make_evidence(values)).effect_interval


def test_the_limit_of_the_intraclass_correlation_is_that_of_f():
    """By hand: groups (0, 1), (2, 3), (4, 5) have mean squares 8 between and .5 within, so F is 16."""
    ratio = 16 / stats.f.ppf(0.05, 2, 3)
    limit = intraclass_limit(np.arange(6.0), (0, 0, 1, 1, 2, 2))
    assert limit == pytest.approx((ratio - 1) / (ratio + 1))
    assert intraclass_limit(np.arange(4.0), (0, 0, 0, 0)) == 1
    of_prompts = make_evidence(along_seeds(np.ones((2, 3))).assign_coords(group=("prompt", [0, 1, 1])), prompts="own")
    with pytest.raises(InputError, match="group of effects must lie along seed"):
        of_prompts.sample("effect", BOTH)


def test_effects_beyond_the_bounds_of_their_criterion_are_refused():
    with pytest.raises(InputError, match="bounds of effect must hold for every effect; got 1 to 1"):
        judge(make_claim("mean", bounds=(0, 0.5)), make_evidence(np.ones(16)))
    wide = judge(make_claim("mean", unit="share of a step"), make_evidence(3 * np.ones(16)))
    assert wide.outcome == "INCONCLUSIVE"  # the unit is only a word
    with pytest.raises(InputError, match="bounds of effect must be the smallest and the largest effect"):
        make_claim("mean", bounds=(1, 0))
