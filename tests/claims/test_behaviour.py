"""Values on controls: what is kept of them, and when two measurements agree."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from mnemoscope.claims import registration as registrations
from mnemoscope.claims.claim import CLAIMS, Control, Gate
from mnemoscope.claims.registration import (
    HERE,
    case_numbers,
    check_registration,
    distances,
    machine,
    measure_controls,
    register,
)
from mnemoscope.core.version import NUMBERS
from tests.claims.trials import EXPLAINED, NOTHING, make_claim


def shifted(draw: int, *, by: float = 0.0) -> dict[str, float]:
    return {"effect": 2 / 3 + draw + by, "gate": 1.0, "beside": 5.0}


def drawn(case: int) -> Any:
    """The number of a draw, which is measured like those of replicates."""
    return {"draw": 10 + case}


CLAIM = make_claim(
    measure=shifted,
    replicate="draw",
    gate=Gate(statement="learned it", at_least=0.5),
    controls=(Control(name="planted", kind="positive", plant=drawn), NOTHING),
    explanation=EXPLAINED,
)


def test_effects_that_decide_and_the_gate_of_the_first_case_are_kept_to_twelve_digits():
    rival = CLAIM.rival("not", "s", quantifier="most", margin=0.1, direction="below", controls=CLAIM.controls)
    kept = {"planted": {"effect": [10.6666666667], "gate": [1.0]}}
    assert measure_controls([CLAIM.against(rival)]) == {"T0": kept, "T0-not": kept}


def test_arrays_are_kept_as_five_numbers_and_what_is_not_finite_as_words():
    assert case_numbers(CLAIM, {"effect": np.array([1.0, math.nan, 4.0])}) == {"effect": [3.0, 2.0, 2.5, 1.0, 4.0]}
    assert case_numbers(CLAIM, {"effect": math.nan, "gate": -math.inf}) == {"effect": ["nan"], "gate": ["-inf"]}
    assert case_numbers(CLAIM, {"effect": np.array([math.nan])}) == {"effect": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("now", "then", "expected"),
    [
        ([0.5], [0.5 + 1e-7], 1e-7),
        ([1000.0], [1000.5], 0.5 / 1000.5),
        ([1.0, 2.0], [1.0], math.inf),
        (["nan"], ["nan"], 0.0),
        (["nan"], [0.0], math.inf),
        (["inf"], ["-inf"], math.inf),
    ],
)
def test_the_distance_is_relative_for_large_numbers_and_infinite_for_what_is_missing(now, then, expected):
    found = distances({"planted": {"effect": now}}, {"planted": {"effect": then}})
    assert found == {"planted": pytest.approx(expected, rel=1e-6)}


def test_another_control_or_effect_is_no_value_of_the_same():
    then = {"planted": {"effect": [1.0]}}
    assert distances(then, {"other": {"effect": [1.0]}}) == {"planted": math.inf, "other": math.inf}
    assert distances(then, {"planted": {"gate": [1.0]}}) == {"planted": math.inf}


@pytest.mark.parametrize(
    ("by", "anew", "elsewhere", "equal"),
    [
        (HERE / 10, True, False, True),
        (HERE * 10, True, False, False),
        (HERE * 10, True, True, True),
        (HERE * 10, False, False, True),
        (CLAIM.controls[0].elsewhere / 10, False, False, True),
    ],
)
def test_values_agree_more_closely_on_the_machine_that_registered_them(
    tmp_path, monkeypatch, by, anew, elsewhere, equal
):
    monkeypatch.setattr(registrations, "package_of", lambda claim: tmp_path)
    register([CLAIM], tmp_path)
    if elsewhere:
        monkeypatch.setattr(registrations, "machine", lambda: "another")
    values = {"T0": {"planted": {"effect": [32 / 3 * (1 + by)], "gate": [1.0]}}}
    found = check_registration(CLAIM, (), values, anew=anew)
    assert found.departures == (() if equal else ("values",))
    assert found.off == pytest.approx(by, rel=0.1)


def test_a_control_says_how_far_its_values_may_differ_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(registrations, "package_of", lambda claim: tmp_path)
    control = replace(CLAIM.controls[0], elsewhere=0.01)
    claim = replace(CLAIM, controls=(control, *CLAIM.controls[1:]))
    register([claim], tmp_path)
    moved = replace(claim, measure=partial(shifted, by=0.0))
    values = {"T0": {"planted": {"effect": [32 / 3 * 1.001], "gate": [1.0]}}}
    assert check_registration(moved, (), values, anew=True).departures == ("values",)
    monkeypatch.setattr(registrations, "machine", lambda: "another")
    found = check_registration(moved, (), values, anew=True)
    assert (found.departures, found.off) == ((), pytest.approx(0.001, rel=0.01))
    assert found.code == "code moved since registration (measure); values equal"
    values["T0"]["planted"]["effect"] = [32 / 3 * 1.1]
    assert check_registration(moved, (), values, anew=True).departures == ("values",)


@pytest.mark.parametrize("moved", [False, True])
def test_other_values_elsewhere_are_told_and_depart_where_code_has_moved(tmp_path, monkeypatch, moved):
    """Of unmoved code they may be those of another machine."""
    monkeypatch.setattr(registrations, "package_of", lambda claim: tmp_path)
    register([CLAIM], tmp_path)
    monkeypatch.setattr(registrations, "machine", lambda: "another")
    values = {"T0": {"planted": {"effect": [32 / 3 * 1.001], "gate": [1.0]}}}
    found = check_registration(
        replace(CLAIM, measure=partial(shifted, by=0.0)) if moved else CLAIM, (), values, anew=True
    )
    if moved:
        assert found.departures == ("values",)
        assert found.code == "code moved since registration (measure); values differ"
    else:
        assert found.departures == ()
        assert found.code == "values differ by 0.001 with the same code, as other machines may"


def test_a_rival_that_gives_other_values_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(registrations, "package_of", lambda claim: tmp_path)
    rival = CLAIM.rival("not", "s", quantifier="most", margin=0.1, controls=CLAIM.controls)
    claim = CLAIM.against(rival)
    register([claim], tmp_path)
    values = measure_controls([claim]) | {"T0-not": {"planted": {"effect": [0.0], "gate": [1.0]}}}
    assert check_registration(claim, (), values, anew=True).departures == ("T0-not: values",)


def test_the_machine_is_named_with_its_instructions_torch_and_the_version_of_our_numbers():
    assert len([part for part in machine().split(", ") if part]) == 4
    assert machine().endswith(f", numbers {NUMBERS}")


def test_what_is_raised_is_another_version():
    assert replace(CLAIMS.get("T5"), version=2).rivals == CLAIMS.get("T5").rivals
    rival = replace(CLAIM, version=3).rival("not", "s", quantifier="most", margin=0.1)
    assert rival.version == 3, "a rival has the measure of its claim, and so its version"
