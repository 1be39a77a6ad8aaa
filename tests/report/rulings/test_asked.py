"""Claims in sentences: what must hold, what would refute them, what is measured; without a verdict."""

import pytest

from mnemoscope.claims.claim import EFFECT, GATE, Control, Criterion, Gate
from mnemoscope.claims.explanation import Explanation, Quantity
from mnemoscope.core.errors import InputError
from mnemoscope.report.rulings.words import (
    describe_quantity,
    refutation_condition,
    registered_terms,
    required_control_result,
    support_condition,
)
from tests.claims.trials import make_claim

PARTS = (
    Criterion(name="cost", quantifier="most", margin=0.25, unit="accuracy"),
    Criterion(name="spared", quantifier="most", margin=0.1, direction="within", unit="share of the loss"),
)
TWO = make_claim(None, parts=PARTS)


@pytest.mark.parametrize(
    ("quantifier", "direction", "holds", "refuted"),
    [
        ("most", "above", "in more than half of the seeds, the effect is above 0.25", "in more than half of the seeds"),
        ("every", "above", "in every seed, the effect is above 0.25", "in at least one seed"),
        ("exists", "below", "in at least one seed, the effect is below 0.25", "in every seed"),
        ("mean", "below", "on average over the seeds, the effect is below 0.25", "on average over the seeds"),
        ("equivalence", "within", "the effect is within ±0.25, which counts as no effect", "on average over the seeds"),
    ],
)
def test_what_must_hold_and_what_would_refute_it(quantifier, direction, holds, refuted):
    claim = make_claim(quantifier, direction=direction)
    opposite = {"above": "below 0.25", "below": "above 0.25", "within": "further than 0.25 from 0"}[direction]
    assert holds in support_condition(claim)
    assert refutation_condition(claim) == f"It is refuted if {refuted}, the effect is {opposite}."


def test_of_several_parts_all_or_any():
    assert support_condition(TWO) == (
        "The claim holds if all of these statements are true: in more than half of the seeds, cost is above 0.25 "
        "accuracy; in more than half of the seeds, spared is within ±0.1 (share of the loss)."
    )
    assert "if any of these statements is true" in refutation_condition(TWO)
    either = make_claim(None, parts=PARTS, joined="any")
    assert "It holds if any of these statements is true" in support_condition(either, subject="It")
    assert "if all of these statements are true" in refutation_condition(either)


@pytest.mark.parametrize(
    ("joined", "kind", "words"),
    [
        ("all", "positive", "cost above 0.25 and spared within ±0.1"),
        ("any", "positive", "cost above 0.25 or spared within ±0.1"),
        ("all", "negative", "not all of: cost above 0.25, spared within ±0.1"),
        ("any", "negative", "not any of: cost above 0.25, spared within ±0.1"),
    ],
)
def test_what_controls_must_give(joined, kind, words):
    assert required_control_result(make_claim(None, parts=PARTS, joined=joined), Control(name="c", kind=kind)) == words


def test_quantities_are_described_where_the_claim_explains_them():
    explained = Explanation(
        procedure="It is done.",
        quantities={EFFECT: Quantity(words="the accuracy lost", formula="a − b"), GATE: Quantity(words="accuracy")},
        margins="Half of all.",
    )
    gate = Gate(statement="learns", at_least=0.5)
    claim = make_claim(gate=gate, explanation=explained)
    assert describe_quantity(claim, EFFECT) == "the accuracy lost: a − b"
    assert dict(registered_terms(claim)) == {
        "criterion": support_condition(claim),
        "refutation": refutation_condition(claim),
        "measured": "It is done.",
        "margins": "Half of all.",
        "gate": "the verdict is about seeds where the model learns (accuracy)",
        "replicates": "16 seeds or more",
    }
    assert claim.rival("not", "it does not", quantifier="most", margin=0.0).explanation is explained
    assert describe_quantity(make_claim(), EFFECT) == ""
    assert dict(registered_terms(make_claim(gate=gate)))["gate"] == "the verdict is about seeds where the model learns"


def test_empty_explanations_are_refused():
    with pytest.raises(InputError, match="words of a quantity must say what it is"):
        Quantity(words=" ")
    with pytest.raises(InputError, match="margins of an explanation must be sentences"):
        Explanation(procedure="It is done.", quantities={}, margins="")
