"""Each fault of an entry is found, and named with its field."""

import json

import pytest

from mnemoscope.claims.entry import entry_text, write_entry
from mnemoscope.registry.validation import entry_faults, file_faults
from tests.registry.cases import CONTENT, make_entry

REGISTRATION = CONTENT["registration"]
FAULTS = {
    "criteria: none": {"criteria": []},
    "criteria.0.margin: 1 cannot be missed or cleared": {"criterion": {"margin": 1}},
    "criteria.0.margin: -1 cannot be missed or cleared": {"criterion": {"margin": -1, "direction": "below"}},
    "criteria.0.margin: 1 cannot be missed": {"criterion": {"margin": 1, "direction": "within"}},
    "criteria.0.margin: must be positive": {"criterion": {"margin": 0, "direction": "within"}},
    "criteria.0.margin: must be a finite number": {"criterion": {"margin": float("nan")}},
    "criteria.0.bounds: must be the smallest": {"criterion": {"bounds": [0.6, 0.4]}},
    "controls: no negative control": {"controls": CONTENT["controls"][:1]},
    "controls: two of one name": {"controls": [CONTENT["controls"][1]] * 2},
    "registration.standing: before its runs, but": {
        "registration": {**REGISTRATION, "runs": REGISTRATION["registered"]}
    },
    "verdicts: 2 count": {"verdicts": CONTENT["verdicts"] * 2},
    "verdicts.0.n_clear: 17 of 16": {"verdict": {"n_clear": 17}},
    "verdicts.0.share: 0.9 is not 15 of 16": {"verdict": {"share": 0.9}},
    "verdicts.0.effect_interval: 0.7 to 0.9 is not around 0.6": {"verdict": {"effect": 0.6}},
    "verdicts.0.version: 2 is later": {"verdict": {"version": 2}},
    "verdicts.0.question: is not the registered one": {"verdict": {"question": "another"}},
    "verdicts.0.outcome: SUPPORTED by 15 replicates": {"verdict": {"n": 15, "share": 1.0}},
    "verdicts.0.confirmed: true, but": {"registration": {**REGISTRATION, "standing": "after its runs"}},
}


def test_a_good_entry_has_no_fault():
    assert list(entry_faults(make_entry())) == []
    assert list(entry_faults(make_entry(criterion={"margin": 0.9, "direction": "within"}))) == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every_case
def test_each_fault_is_named(fault):
    found = list(entry_faults(make_entry(**FAULTS[fault])))
    assert any(each.startswith(fault) for each in found), found


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"colour": "blue"}, "colour: Extra inputs are not permitted"),
        ({"id": "T1"}, "id: String should match"),
        ({"kind": "magic"}, "kind: Input should be"),
        ({"format": 2}, "format: 2 is newer than 1"),
        ({"verdicts": [{"outcome": "MIXED", "n": 16}]}, "verdicts.0.n_clear: Field required"),
        ({"verdicts": [{"outcome": "TRUE", "n": 16, "n_clear": 1}]}, "verdicts.0.outcome: Input should be"),
    ],
)
@pytest.mark.every_case
def test_fields_are_checked_by_the_schema(change, fault, tmp_path):
    file = tmp_path / "T1.json"
    file.write_text(json.dumps({**json.loads(entry_text(make_entry())), **change}), encoding="utf-8")
    (faults,) = file_faults([file]).values()
    assert any(each.startswith(fault) for each in faults), faults


def test_an_id_that_stands_twice_is_a_fault(tmp_path):
    files = [write_entry(make_entry(), tmp_path / name) for name in ("a", "b")]
    assert [len(faults) for faults in file_faults(files).values()] == [0, 1]
    (tmp_path / "c.json").write_bytes(b"{")
    assert file_faults([tmp_path / "c.json"])[tmp_path / "c.json"][0].startswith("no JSON")
