import numpy as np
import pytest
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.systems.retrieval.circuit_effects import of_courses
from mnemoscope.systems.retrieval.claims.emergence import R4, R7, falls
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import MINUTES
from tests.systems.on_trial import on, verdict
from tests.systems.planting import effects_of, misbehaving

STEPS = np.arange(0, 1000, 50)


def course(*, by, slow=0):
    """Attention that rises from 0 to 1 and is one half at a step."""
    return xr.DataArray(
        np.interp(STEPS, [by - 1 - slow, by, by + slow], [0, 0.5, 1]), dims="step", coords={"step": STEPS}
    )


def test_when_paths_set_in():
    paths = {(2, 1): course(by=200), (4, 3): course(by=400), (0, 2): course(by=250), (0, 4): course(by=500)}
    found = of_courses(paths)
    assert found == {"induction_first": 250, "width": pytest.approx(50 / 250), "spread": 300}
    assert of_courses({**paths, (0, 4): course(by=100)})["induction_first"] == -150
    assert of_courses({**paths, (0, 4): course(by=5000)})["induction_first"] == 951 - 250, "never: after the last step"


def test_slow_attention_is_wide():
    assert of_courses({(2, 1): course(by=200), (0, 2): course(by=600, slow=400)})["width"] > 0.25


def test_without_an_induction_head_nothing_comes_first():
    assert of_courses({(0, 4): course(by=500)}) == {"induction_first": 0, "width": 1, "spread": 0}
    assert of_courses({})["spread"] == 0


def test_a_run_that_was_not_tracked_is_refused():
    with pytest.raises(InputError, match="track it first"):
        falls(on(chain_follower(2), Retrieval(n_steps=2)))


def test_when_losses_fall():
    (plant,) = [control.plant for control in R4.controls if control.name == "in order"]
    found = effects_of(R4, plant)
    assert {name: found[name] for name in ("x1", "x2", "x3", "lead", "last_two")} == {
        "x1": 400, "x2": 800, "x3": 1600, "lead": 400, "last_two": 800,
    }  # fmt: skip
    assert found["gate"] == 0


def test_what_decides_them():
    def outcomes(claim, **found):
        return [verdict(each, {"gate": 0.01, **found}).outcome for each in (claim, *claim.rivals)]

    assert outcomes(R4, lead=50, last_two=75) == ["SUPPORTED", "SUPPORTED"]
    assert outcomes(R4, lead=0, last_two=500) == ["INCONCLUSIVE", "REFUTED"]
    assert outcomes(R4, lead=-50, last_two=500) == ["REFUTED", "REFUTED"]
    good = {"induction_first": 50, "width": 0.1, "reused": 0.5, "spread": 500}
    assert outcomes(R7, **good) == ["SUPPORTED", "REFUTED"]
    for name, value in (("induction_first", -25), ("width", 0.5), ("reused", 0.0)):
        assert outcomes(R7, **{**good, name: value})[0] == "REFUTED", name
    assert outcomes(R7, **{**good, "induction_first": -10, "spread": 50})[1] == "SUPPORTED"


@pytest.mark.parametrize("claim", [R4, pytest.param(R7, marks=MINUTES)], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}
