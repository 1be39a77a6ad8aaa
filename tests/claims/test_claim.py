import numpy as np
import pytest

from mnemoscope.claims.claim import Claim, Control, Criterion, Gate
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from tests.claims.trials import make_claim


def part(**changes):
    return Criterion(**{"name": "loss", "quantifier": "most", "margin": 0.5, **changes})


def test_a_claim_without_parts_has_one_criterion_and_one_with_parts_has_them():
    assert make_claim("most", direction="below").criteria == (part(name="effect", margin=0.25, direction="below"),)
    parts = (part(name="a"), part(name="b"))
    assert make_claim(None, parts=parts).criteria == parts


def test_claims_are_values():
    assert make_claim() == make_claim()
    units = {"v3": Configuration(preset="v3")}
    assert hash(make_claim(units=units)) == hash(make_claim(units=dict(units)))
    assert make_claim() != make_claim(id="T1")


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": " "}, "id of a claim must be a text"),
        ({"quantifier": "some"}, "quantifier of effect must be one of: most, every"),
        ({"quantifier": None}, "must have a quantifier and a margin, or parts"),
        ({"quantifier": None, "margin": None}, "or parts; got neither"),
        ({"margin": float("nan")}, "margin of effect must be a finite number"),
        ({"direction": "upwards"}, "direction of effect must be one of: above, below, within"),
        ({"direction": "within", "margin": 0.0}, "margin of effect must be a positive number"),
        ({"quantifier": "equivalence"}, "equivalence needs direction='within'"),
        ({"quantifier": "mean", "direction": "within"}, "is quantifier='equivalence'"),
        ({"joined": "both"}, "joined of claim T0 must be one of: all, any"),
        ({"n_replicates": 15}, "at least 16 for a claim; got 15"),
        ({"first_seed": 32, "last_seed": 31}, "last_seed of T0 must be at least 32; got 31"),
        ({"headline": True, "n_replicates": 31}, "at least 32 for a headline claim; got 31"),
    ],
)
def test_a_claim_that_cannot_be_judged_cannot_be_built(changes, message):
    fields = {"id": "T0", "statement": "it does", "source": "made up", "quantifier": "most", "margin": 0.25}
    with pytest.raises(InputError, match=message):
        Claim(**{**fields, **changes})


def test_seeds_outside_the_bounds_do_not_count():
    assert [seed for seed in range(5) if make_claim(first_seed=1, last_seed=3).counts(seed)] == [1, 2, 3]
    assert make_claim().counts(0)
    assert make_claim(first_seed=1).counts(10**6)


def test_names_in_a_claim_differ():
    with pytest.raises(InputError, match="give none here"):
        make_claim("most", parts=(part(),))
    with pytest.raises(InputError, match="parts of claim T0 must have different names"):
        make_claim(None, parts=(part(), part()))
    with pytest.raises(InputError, match="controls of claim T0 must have different names"):
        make_claim(controls=(Control(name="u", kind="negative"), Control(name="u", kind="positive")))
    with pytest.raises(InputError, match="rivals of claim T0 must have different names"):
        make_claim(rivals=(make_claim(),))


@pytest.mark.parametrize(
    ("direction", "signs"),
    [("above", [-1, -1, -1, 0, 1]), ("below", [1, 1, 1, 0, -1]), ("within", [-1, 0, 1, 0, -1])],
)
def test_an_effect_at_the_margin_neither_clears_it_nor_fails(direction, signs):
    effects = np.array([-0.9, -0.5, 0.0, np.float32(0.1) * 5.0, 0.9])
    assert np.sign(part(direction=direction).slack(effects)).tolist() == signs


def test_what_passes_a_gate():
    gate = Gate(statement="learned it", at_least=0.9, at_most=1.0)
    assert gate.passes([0.89, 0.9, 1.0, 1.1, np.nan]).tolist() == [False, True, True, False, False]
    for bounds in ({}, {"at_least": 1, "at_most": 0}, {"at_least": float("nan")}):
        with pytest.raises(InputError, match="gate must have a bound that some value meets"):
            Gate(statement="none", **bounds)


@pytest.mark.usefixtures("as_installed")
def test_a_control_may_not_misbehave_as_often_as_not():
    with pytest.raises(InputError, match=r"tolerated of control untrained must be from 0 to 0\.49"):
        Control(name="untrained", kind="negative", tolerated=0.5)
    with pytest.raises(InputError, match="must be one of: positive, negative"):
        Control(name="untrained", kind="neutral")
