"""One replicate worked through: the numbers of the seed in the middle, and what follows from them."""

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import EFFECT, Criterion, Gate
from mnemoscope.claims.explanation import Explanation, Quantity
from mnemoscope.report.rulings import rulings_page
from mnemoscope.report.rulings.page import QuantityLine, work_through
from tests.claims.trials import along_seeds, clearing, make_claim, make_evidence
from tests.report.rulings.made_up import nobody_passes, ruling

EXPLANATION = Explanation(
    procedure="It is done.", quantities={EFFECT: Quantity(words="what is lost", formula="a − b")}, margins="Half."
)


def test_the_seed_in_the_middle_with_its_numbers():
    found = work_through(ruling(make_claim(explanation=EXPLANATION), make_evidence(np.linspace(0, 1.5, 16))))
    assert found.label == "seed 8"
    assert found.sentence == "Seed 8 meets the criterion of the claim."
    line = QuantityLine(
        name="the effect", quantity=EXPLANATION.quantities[EFFECT], value="0.8 logits", must_be="above 0.25", meets=True
    )
    assert found.lines == (line,)


def test_gate_parts_and_what_stands_beside():
    parts = tuple(Criterion(name=name, quantifier="most", margin=0.25) for name in ("a", "b"))
    effects = xr.Dataset({"a": along_seeds(clearing(16, 16)), "b": along_seeds(clearing(0, 16))})
    effects["beside"] = along_seeds(np.arange(16.0))
    gate = along_seeds(np.r_[0.2, np.full(15, 0.9)])
    claim = make_claim(None, parts=parts, gate=Gate(statement="learns", at_least=0.5))
    found = work_through(ruling(claim, make_evidence(effects, gate=gate)))
    assert [(line.name, line.must_be, line.meets) for line in found.lines] == [
        ("gate", "at least 0.5", True),
        ("a", "above 0.25", True),
        ("b", "above 0.25", False),
        ("beside", "", None),
    ]
    assert found.label != "seed 0"  # it fails the gate
    assert found.lines[-1].value == found.label.removeprefix("seed ")
    assert "does not meet the criterion of the claim: 1 of its 2 parts holds, and all have to." in found.sentence
    either = work_through(ruling(make_claim(None, parts=parts, joined="any"), make_evidence(effects)))
    assert "meets the criterion of the claim: 1 of its 2 parts holds, and one has to." in either.sentence


def test_stands_on_the_page_where_a_seed_was_judged():
    page = rulings_page([ruling(make_claim(explanation=EXPLANATION), make_evidence(clearing(16, 16)))], title="x")
    assert "One seed worked through: seed" in page
    assert 'what is lost<span class="formula">a − b</span>' in page
    assert work_through(nobody_passes()) is None
    assert "worked through" not in rulings_page([nobody_passes()], title="x")
