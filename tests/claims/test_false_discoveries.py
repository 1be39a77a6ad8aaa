"""False discoveries among all claims of one call."""

from dataclasses import replace

import numpy as np

from mnemoscope.claims.false_discoveries import RATE, adjusted, describe_discoveries, with_discovery_rates
from mnemoscope.claims.judge import judge
from mnemoscope.claims.ruling import Ruling
from tests.claims.trials import clearing, make_claim, make_evidence


def test_many_null_claims_seldom_give_one_that_stands():
    """Of 200 null claims one has a p of .01 or less in seven of eight calls."""
    draws = np.random.default_rng(0).uniform(size=(400, 200))
    least = [min(adjusted({str(i): p for i, p in enumerate(ps)}).values()) for ps in draws]
    assert np.mean(draws.min(1) <= 0.01) > 0.8
    assert np.mean(np.array(least) <= RATE) <= 0.05


def test_claims_without_a_p_do_not_count():
    assert adjusted({"A": 0.001, "B": float("nan")}) == {"A": 0.001}
    assert adjusted({}) == {}


def ruling(id: str, n_clear: int, n: int = 16, **changes) -> Ruling:
    claim, evidence = make_claim(**{"id": id, **changes}), make_evidence(clearing(n_clear, n))
    return Ruling(claim=claim, evidence=evidence, verdict=judge(claim, evidence), rivals={})


def test_a_call_says_which_decisions_stand():
    strong, weak = ruling("A", 16), ruling("B", 14)
    others = [ruling(f"C{i}", 8) for i in range(20)]
    found = with_discovery_rates([strong, weak, *others, ruling("D", 4, 4)])
    rates = {each.claim.id: each.false_discovery_rate for each in found}
    assert rates["A"] <= RATE < rates["B"], "14 of 16 alone is SUPPORTED"
    assert weak.verdict.outcome == "SUPPORTED"
    assert rates["D"] is None
    said = describe_discoveries(found)
    assert "over 22 claims of this call, by Benjamini and Yekutieli, 1 of 2 decisions stand; not B (" in said


def test_one_claim_has_no_rate():
    (alone,) = with_discovery_rates([ruling("A", 16)])
    assert alone.false_discovery_rate is None
    assert describe_discoveries([alone]) == ""


def test_headlines_enter_with_their_own_p():
    """Not with the one that was adjusted for the family already."""
    one = ruling("A", 32, 32, headline=True, n_replicates=32)
    adjusted_twice = replace(one, verdict=replace(one.verdict, p_support=1.0))
    found = with_discovery_rates([adjusted_twice, ruling("B", 8)])
    assert found[0].false_discovery_rate < RATE
