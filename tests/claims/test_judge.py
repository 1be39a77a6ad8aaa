import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.claims.claim import Control, Criterion, Gate
from mnemoscope.claims.judge import judge, judge_family
from mnemoscope.core.errors import InputError
from tests.claims.trials import MARGIN, along_seeds, clearing, make_claim, make_evidence

GATE = Gate(statement="recall is right in 99 % of unseen prompts", at_least=0.99)


def outcome(claim, evidence) -> str:
    return judge(claim, evidence, n_resamples=999).outcome


def of_parts(joined="all", **effects):
    """A claim about the named effects, `most` seeds each, and its evidence."""
    claim = make_claim(
        None, joined=joined, parts=tuple(Criterion(name=n, quantifier="most", margin=MARGIN) for n in effects)
    )
    return claim, make_evidence(xr.Dataset({name: along_seeds(values) for name, values in effects.items()}))


@pytest.mark.parametrize(
    ("n", "n_clear", "expected"),
    [
        (16, 16, "SUPPORTED"),
        (16, 14, "SUPPORTED"),
        (16, 13, "INCONCLUSIVE"),  # p = .011
        (16, 12, "INCONCLUSIVE"),  # share .476 to .927
        (16, 11, "MIXED"),  # share .413 to .890
        (16, 5, "MIXED"),
        (16, 4, "INCONCLUSIVE"),
        (16, 3, "INCONCLUSIVE"),
        (16, 2, "REFUTED"),
        (32, 24, "SUPPORTED"),
        (32, 23, "INCONCLUSIVE"),
        (32, 16, "MIXED"),
        (32, 8, "REFUTED"),
    ],
)
def test_outcomes_of_most(n, n_clear, expected):
    verdict = judge(make_claim(), make_evidence(clearing(n_clear, n)), n_resamples=99)
    assert verdict.outcome == expected
    assert verdict.share == n_clear / n
    assert verdict.n == n


@pytest.mark.parametrize(
    ("quantifier", "expected"),
    [("most", "SUPPORTED"), ("every", "REFUTED"), ("exists", "SUPPORTED"), ("mean", "SUPPORTED")],
)
def test_one_deviating_seed_in_sixteen(quantifier, expected):
    effects = np.random.default_rng(0).normal(1, 0.05, 16)
    effects[7] = 0.0
    assert outcome(make_claim(quantifier, bounds=(0, 1.5)), make_evidence(effects)) == expected
    if quantifier == "every":
        assert outcome(make_claim(quantifier), make_evidence(effects, prompts=None)) == "INCONCLUSIVE"
    if quantifier == "exists":
        assert outcome(make_claim(quantifier), make_evidence(1 - effects)) == "SUPPORTED"


def test_one_deviating_seed_leaves_equivalence_undecided():
    effects = np.random.default_rng(0).normal(0, 0.01, 16)
    assert outcome(make_claim("equivalence", bounds=(-0.6, 0.6)), make_evidence(effects)) == "SUPPORTED"
    effects[7] = 1.0
    verdict = judge(make_claim("equivalence", bounds=(-1, 1)), make_evidence(effects))
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.effect_interval.high > MARGIN > verdict.effect


def test_the_gate_comes_first():
    effects = np.r_[clearing(16, 16), np.full(4, np.nan)]
    evidence = make_evidence(effects, gate=along_seeds(np.r_[np.ones(16), 0.5, 0.5, 0.98, np.nan]))
    verdict = judge(make_claim(gate=GATE), evidence)
    assert (verdict.outcome, verdict.n, verdict.n_failed) == ("SUPPORTED", 16, 4)
    assert verdict.reason == (
        "16 of 20 seeds pass the gate (recall is right in 99 % of unseen prompts); "
        "the effect is above 0.25 logits in 16 of 16 seeds."
    )


def test_too_few_replicates_give_effects_and_no_verdict():
    verdict = judge(make_claim(), make_evidence(clearing(15, 15)))
    assert verdict.outcome == "NOT_APPLICABLE"
    assert verdict.effect == 0.75
    assert math.isnan(verdict.p)
    assert verdict.reason.endswith("15 of 15 seeds; a verdict needs 16 seeds.")
    assert outcome(make_claim(n_replicates=20), make_evidence(clearing(19, 19))) == "NOT_APPLICABLE"


@pytest.mark.parametrize(("n_pass", "expected"), [(0, "NOT_APPLICABLE"), (1, "INCONCLUSIVE"), (15, "INCONCLUSIVE")])
def test_a_gate_that_few_pass_leaves_nothing_to_decide(n_pass, expected):
    evidence = make_evidence(clearing(32, 32), gate=along_seeds(np.arange(32) < n_pass))
    verdict = judge(make_claim(gate=GATE), evidence)
    assert (verdict.outcome, verdict.n, verdict.n_failed) == (expected, n_pass, 32 - n_pass)
    assert verdict.reason.startswith(f"{n_pass} of 32 seeds pass the gate")
    assert math.isnan(verdict.p)


@pytest.mark.parametrize(
    ("kind", "effects", "tolerated", "fine"),
    [
        ("positive", 1.0, 0.0, True),
        ("positive", MARGIN, 0.0, False),
        ("positive", np.nan, 0.0, False),
        ("negative", 0.0, 0.0, True),
        ("negative", 1.0, 0.0, False),
        ("negative", [0.0] * 9 + [1.0], 0.1, True),
        ("negative", [0.0] * 8 + [1.0] * 2, 0.1, False),
        ("positive", [1.0] * 8 + [0.0] * 2, 0.1, False),
    ],
)
def test_a_control_that_misbehaves_makes_all_inconclusive(kind, effects, tolerated, fine):
    claim = make_claim(controls=(Control(name="known", kind=kind, tolerated=tolerated),))
    for n_clear, decided in ((16, "SUPPORTED"), (0, "REFUTED"), (8, "MIXED")):
        evidence = make_evidence(clearing(n_clear, 16), controls={"known": xr.DataArray(effects)})
        verdict = judge(claim, evidence, n_resamples=99)
        assert verdict.outcome == (decided if fine else "INCONCLUSIVE")
        assert ("known misbehaves" in verdict.reason) == (not fine)


def test_a_control_is_about_what_the_claim_is_about():
    spread = xr.DataArray([-1.0, 1.0], dims="untrained")
    controls = (Control(name="untrained", kind="negative"),)
    evidence = make_evidence(clearing(16, 16), controls={"untrained": spread})
    assert outcome(make_claim("most", controls=controls), evidence) == "INCONCLUSIVE"
    assert outcome(make_claim("mean", controls=controls, bounds=(0, 1)), evidence) == "SUPPORTED"
    claim, evidence = of_parts(a=clearing(16, 16), b=clearing(16, 16))
    half = xr.Dataset({"a": 1.0, "b": 0.0})  # one of two parts shows up without training: that is not the claim
    for joined, expected in (("all", "SUPPORTED"), ("any", "INCONCLUSIVE")):
        joined_claim = replace(claim, joined=joined, controls=controls)
        assert outcome(joined_claim, replace(evidence, controls={"untrained": half})) == expected


def test_controls_are_declared_and_measured():
    claim = make_claim(controls=(Control(name="untrained", kind="negative"),))
    verdict = judge(claim, make_evidence(clearing(16, 16)))
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason.endswith("the control untrained was not measured.")
    with pytest.raises(InputError, match=r"declared beforehand: \[\]; got also \['late'\]"):
        judge(make_claim(), make_evidence(clearing(16, 16), controls={"late": xr.DataArray(1.0)}))
    grid = xr.DataArray([[1.0]], dims=("head", "layer"))
    with pytest.raises(InputError, match="untrained may have one dimension and prompt"):
        judge(claim, make_evidence(clearing(16, 16), controls={"untrained": grid}))


@pytest.mark.parametrize(
    ("joined", "first", "second", "expected"),
    [
        ("all", 16, 15, "SUPPORTED"),
        ("all", 16, 0, "REFUTED"),
        ("all", 16, 8, "MIXED"),
        ("all", 16, 13, "INCONCLUSIVE"),
        ("any", 16, 0, "SUPPORTED"),
        ("any", 0, 1, "REFUTED"),
        ("any", 0, 8, "MIXED"),
    ],
)
def test_parts_are_joined(joined, first, second, expected):
    assert outcome(*of_parts(joined, a=clearing(first, 16), b=clearing(second, 16))) == expected


def test_the_p_of_parts_joined():
    claim, evidence = of_parts(a=clearing(16, 16), b=clearing(14, 16))
    verdict = judge(claim, evidence, n_resamples=99)
    assert verdict.p == verdict.p_support == pytest.approx(137 / 2**16)  # the larger of the two
    assert verdict.effect == verdict.parts[1].effect
    assert verdict.reason.startswith("all parts hold in 14 of 16 seeds; a is above 0.25 in 16 of 16 seeds; b is above")
    claim, evidence = of_parts("any", a=clearing(14, 16), b=clearing(8, 16))
    verdict = judge(claim, evidence, n_resamples=99)
    assert verdict.p == pytest.approx(2 * 137 / 2**16)  # the smaller one, chosen out of two
    assert verdict.effect == verdict.parts[0].effect


def test_a_claim_whose_parts_hold_in_different_seeds_shows_it():
    claim, evidence = of_parts(a=clearing(12, 16), b=clearing(12, 16)[::-1].copy())
    verdict = judge(claim, evidence, n_resamples=99)
    assert verdict.share == 0.5
    assert [part.share for part in verdict.parts] == [0.75, 0.75]


def headline(name, **changes):
    return make_claim(id=name, headline=True, n_replicates=32, **changes)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("n_claims", "expected"), [(1, "SUPPORTED"), (7, "SUPPORTED"), (8, "INCONCLUSIVE")])
def test_headline_claims_share_the_error_rate(n_claims, expected):
    # 24 of 32: p = .0035, and .025 / 7 > .0035 > .025 / 8; the others have p = .99 or none at all
    others = [
        (headline(f"other{i}"), make_evidence(clearing(10 if i else 32, 32 if i else 31))) for i in range(n_claims - 1)
    ]
    family = [(headline("T1"), make_evidence(clearing(24, 32))), *others]
    aside = (make_claim(id="aside", n_replicates=32), make_evidence(clearing(24, 32)))
    verdicts = judge_family([*family, aside], n_resamples=99)
    assert list(verdicts) == [claim.id for claim, _ in family] + ["aside"]
    assert verdicts["T1"].outcome == expected
    assert verdicts["T1"].p_support == pytest.approx(n_claims * 0.003500, rel=1e-3)
    assert verdicts["aside"] == judge(*aside, n_resamples=99)
    assert verdicts["aside"].outcome == "SUPPORTED"


def test_directions_are_adjusted_apart_and_a_family_never_says_more_than_one_claim_alone():
    family = [(headline(f"up{i}"), make_evidence(clearing(32, 32))) for i in range(5)]
    family += [(headline("last"), make_evidence(clearing(23, 32))), (headline("down"), make_evidence(clearing(8, 32)))]
    verdicts = judge_family(family, n_resamples=99)
    assert verdicts["up0"].outcome == "SUPPORTED"
    assert verdicts["down"].p_refute == pytest.approx(7 * 0.0035, rel=1e-2)
    assert verdicts["down"].outcome == "REFUTED"
    assert verdicts["last"].p_support == pytest.approx(2 * 0.01003, rel=1e-2)  # Holm leaves it below .025
    assert verdicts["last"].outcome == "INCONCLUSIVE"
    with pytest.raises(InputError, match="must have different ids; got T0, T0"):
        judge_family([(make_claim(), make_evidence(clearing(16, 16)))] * 2)


def test_evidence_is_of_the_kind_that_the_claim_asks_for():
    with pytest.raises(InputError, match="evidence for T0 must be per draw; got per seed"):
        judge(make_claim(replicate="draw"), make_evidence(clearing(16, 16)))
    with pytest.raises(InputError, match="or in neither; got one in the claim"):
        judge(make_claim(gate=GATE), make_evidence(clearing(16, 16)))
    with pytest.raises(InputError, match="or in neither; got one in the evidence"):
        judge(make_claim(), make_evidence(clearing(16, 16), gate=along_seeds(np.ones(16))))


def test_a_verdict_follows_from_the_seed():
    rng = np.random.default_rng(0)
    evidence = make_evidence(rng.normal(0.4, 0.3, 16))
    claim = make_claim("mean", margin=0.05, bounds=(-0.3, 0.8))
    assert judge(claim, evidence) == judge(claim, evidence)
    assert judge(claim, evidence, seed=1).p_support != judge(claim, evidence).p_support
