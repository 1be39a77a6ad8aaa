"""What is registered of a claim, and what is noticed when it changes."""

import json
from dataclasses import replace
from functools import partial

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.core.subject import Subject
from mnemoscope.judging.claim import Control, Gate
from mnemoscope.judging.registration import FILE, differences, function_digest, registered, registration
from tests.judging.trials import make_claim

FACTOR = 2.0


def doubled(value: float) -> float:
    """Twice as much."""
    return FACTOR * value


def measure(subject: Subject, *, kind: str = "mean") -> dict[str, float]:
    return {"effect": doubled(float(subject.seed))}


def other_measure(subject: Subject, *, kind: str = "mean") -> dict[str, float]:
    return {"effect": doubled(float(subject.seed)) + 1}


def ones(case: int) -> dict[str, dict[str, float]]:
    return {"narrow": {"effect": 1.0}}


def zeros(case: int) -> dict[str, dict[str, float]]:
    return {"narrow": {"effect": 0.0}}


CLAIM = make_claim(
    gate=Gate(statement="learned it", at_least=0.99),
    units={"narrow": Configuration(preset="d4")},
    measure=measure,
    controls=(Control(name="planted", kind="positive", plant=ones),),
    factors={"kind": ("zero",)},
)
RIVAL = CLAIM.rival("not", "it does not", quantifier="most", margin=0.1, direction="below")
SEEDS = tuple(range(16, 32))

CHANGES = {
    "criteria": {"margin": 0.2},
    "gate": {"gate": Gate(statement="learned it", at_least=0.98)},
    "units": {"units": {"narrow": Configuration(preset="d4", changes=(("recipe.n_steps", 100),))}},
    "measure": {"measure": other_measure},
    "controls": {"controls": (Control(name="planted", kind="positive", plant=zeros),)},
    "factors": {"factors": {}},
    "replicates": {"n_replicates": 32},
    "prompts": {"prompts": "enumerated"},
}


def test_a_registration_is_found_again_as_it_was(tmp_path):
    claim = CLAIM.against(RIVAL)
    (tmp_path / FILE).write_text(json.dumps({"T0": registration(claim, SEEDS)}))
    assert differences(claim, SEEDS, registered(tmp_path)["T0"]) == []
    reworded = replace(claim, statement="it does so", source="elsewhere")
    assert differences(reworded, SEEDS, registered(tmp_path)["T0"]) == []
    assert registered(tmp_path / "elsewhere") == registered(None) == {}


@pytest.mark.parametrize("what", CHANGES)
def test_what_decides_a_verdict_is_noticed_when_it_changes(what):
    then = registration(CLAIM, SEEDS)
    assert differences(replace(CLAIM, **CHANGES[what]), SEEDS, then) == [what]


def test_other_seeds_and_rivals_are_noticed():
    then = registration(CLAIM.against(RIVAL), SEEDS)
    assert differences(CLAIM.against(RIVAL), SEEDS[1:], then) == ["seeds"]
    assert differences(CLAIM, SEEDS, then) == ["rival T0-not"]
    milder = CLAIM.rival("not", "it does not", quantifier="most", margin=0.2, direction="below")
    assert differences(CLAIM.against(milder), SEEDS, then) == ["T0-not: criteria"]


def test_the_digest_is_of_what_a_function_does(monkeypatch):
    """Of the constants and functions of its module that it uses, and of what is bound to it; not of its docstring."""
    before = function_digest(measure)
    assert function_digest(partial(measure, kind="zero")) != before
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert function_digest(measure) != before
    monkeypatch.undo()
    assert function_digest(measure) == before
    monkeypatch.setattr("inspect.getsource", lambda of: SOURCES[of.__name__].replace("Twice", "Two times"))
    assert function_digest(measure) == before
    monkeypatch.setattr("inspect.getsource", lambda of: SOURCES[of.__name__].replace("FACTOR *", "FACTOR +"))
    assert function_digest(measure) != before


SOURCES = {
    "measure": """def measure(subject: Subject, *, kind: str = "mean") -> dict[str, float]:
    return {"effect": doubled(float(subject.seed))}
""",
    "doubled": '''def doubled(value: float) -> float:
    """Twice as much."""
    return FACTOR * value
''',
    "Subject": "class Subject: ...",
}


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / FILE).write_text("{")
    with pytest.raises(InputError, match=r"registered\.json cannot be read"):
        registered(tmp_path)
