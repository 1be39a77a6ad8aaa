"""F-K1, D2 to D5: their controls, and what decides them."""

import pytest

from mnemoscope.systems.dictionaries.claims import agreement, error, folding, removal, selectivity
from tests.support import MINUTES
from tests.systems.on_trial import verdict
from tests.systems.planting import misbehaving

EVERY = [selectivity.CLAIM, agreement.CLAIM, removal.CLAIM, error.CLAIM]


@MINUTES  # up to three transcoders are trained for each of several models
@pytest.mark.parametrize("claim", EVERY, ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


BETTER = {"selective": 0.2, "needed": 0.5}
ALIKE = {"selective": 0.0, "needed": 1.0}


def measured(*, kept: float = 0.5, **kinds) -> dict[str, float]:
    found = {f"{name} {what}": value for name, kind in kinds.items() for what, value in kind.items()}
    return {**found, "features needed, error kept": kept, "gate": 1.0}


@pytest.mark.parametrize(
    ("found", "holding"),
    [
        (measured(features=BETTER, narrow=BETTER, dense=BETTER, rotated=ALIKE), {"F-K1"}),
        (measured(features=BETTER, narrow=BETTER, dense=BETTER, rotated=BETTER), {"F-K1", "F-K1-rotated"}),
        (measured(features=BETTER, narrow=ALIKE, dense=BETTER, rotated=ALIKE), {"F-K1", "F-K1-width"}),
        (measured(features=BETTER, narrow=BETTER, dense=ALIKE, rotated=ALIKE), {"F-K1", "F-K1-sparsity"}),
        (measured(features=BETTER, narrow=BETTER, dense=BETTER, rotated=ALIKE, kept=1.0), set()),
        (measured(features={**BETTER, "needed": 0.8}, narrow=BETTER, dense=BETTER, rotated=ALIKE), set()),
        (measured(features={**BETTER, "selective": 0.05}, narrow=BETTER, dense=BETTER, rotated=ALIKE), set()),
    ],
)
def test_what_decides_f_k1(found, holding):
    everyone = (selectivity.CLAIM, *selectivity.CLAIM.rivals)
    assert {one.id for one in everyone if verdict(one, found).outcome == "SUPPORTED"} == holding


@pytest.mark.parametrize(
    ("loss", "recall", "noise", "expected"),
    [
        (0.05, 0.05, 1.0, ["SUPPORTED", "REFUTED"]),
        (0.05, 0.05, 9.0, ["SUPPORTED", "SUPPORTED"]),
        (0.05, 0.15, 9.0, ["REFUTED", "SUPPORTED"]),
        (0.15, 0.05, 1.0, ["REFUTED", "REFUTED"]),
    ],
)
def test_what_decides_d5(loss, recall, noise, expected):
    found = {"loss": loss, "recall": recall, "noise": noise, "gate": 1.0}
    assert [verdict(one, found).outcome for one in (error.CLAIM, *error.CLAIM.rivals)] == expected


@pytest.mark.parametrize(
    ("lead", "rotated", "neurons", "holding"),
    [
        (0.3, -0.2, 0.2, {"D2"}),
        (0.1, -0.2, 0.2, set()),
        (0.3, -0.05, 0.2, {"D2", "D2-rotated"}),
        (0.3, -0.2, 0.05, {"D2", "D2-grain"}),
    ],
)
def test_what_decides_d2(lead, rotated, neurons, holding):
    found = {"lead": lead, "rotated less features": rotated, "neurons less features": neurons, "gate": 1.0}
    everyone = (agreement.CLAIM, *agreement.CLAIM.rivals)
    assert {one.id for one in everyone if verdict(one, found).outcome == "SUPPORTED"} == holding


def test_controls_of_d3_behave():
    assert misbehaving(folding.CLAIM) == {}
    assert [misbehaving(rival) for rival in folding.CLAIM.rivals] == [{}, {}]


FOLDED, APART = {"folded": 0.9, "followed": 0.1}, {"folded": 0.1, "followed": 0.9}
_UNCLEAR = {"folded": 0.9, "followed": 0.9}


@pytest.mark.parametrize(
    ("price", "no_price", "varied", "explained", "expected"),
    [
        (FOLDED, APART, APART, 1.0, ["SUPPORTED"] * 3),
        (FOLDED, FOLDED, APART, 1.0, ["SUPPORTED", "REFUTED", "SUPPORTED"]),
        (FOLDED, APART, FOLDED, 1.0, ["SUPPORTED", "SUPPORTED", "REFUTED"]),
        (APART, APART, APART, 1.0, ["REFUTED"] * 3),
        (_UNCLEAR, APART, _UNCLEAR, 1.0, ["REFUTED", "SUPPORTED", "REFUTED"]),
        (FOLDED, APART, APART, 0.9, ["NOT_APPLICABLE"] * 3),
    ],
)
def test_what_decides_d3(price, no_price, varied, explained, expected):
    kinds = {"": price, "no price ": no_price, "varied ": varied}
    found = {f"{kind}{name}": value for kind, each in kinds.items() for name, value in each.items()}
    everyone = (folding.CLAIM, *folding.CLAIM.rivals)
    assert [verdict(one, {**found, "gate": explained}).outcome for one in everyone] == expected


NEEDED, REPLACED, ANY = {"cost": 0.9, "lead": 0.5}, {"cost": 0.3, "lead": 0.3}, {"cost": 0.9, "lead": 0.1}


@pytest.mark.parametrize(
    ("features", "rotated", "sparse", "holding"),
    [
        (NEEDED, REPLACED, REPLACED, {"D4"}),
        (REPLACED, REPLACED, NEEDED, {"D4-sparsity"}),
        (NEEDED, NEEDED, NEEDED, {"D4", "D4-rotated", "D4-sparsity"}),
        (ANY, ANY, REPLACED, set()),
    ],
)
def test_what_decides_d4(features, rotated, sparse, holding):
    kinds = {"features": features, "rotated": rotated, "sparse": sparse}
    found = {f"{kind} {word}": value for kind, one in kinds.items() for word, value in one.items()}
    everyone = (removal.CLAIM, *removal.CLAIM.rivals)
    assert {one.id for one in everyone if verdict(one, {**found, "gate": 1.0}).outcome == "SUPPORTED"} == holding
