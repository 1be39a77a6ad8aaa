"""Registrations on disk: written once, compared with the claims of today, superseded with a reason only."""

import functools
import json
from dataclasses import replace
from itertools import pairwise

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.registration import (
    FILE,
    Superseded,
    check_registration,
    differences,
    measure_controls,
    package_of,
    read_registrations,
    register,
    registration,
    superseded_forms,
)
from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.core.errors import InputError

T14 = CLAIMS.get("T14")
values_of_t14 = functools.cache(lambda: measure_controls([T14]))


@pytest.fixture
def measured_once(monkeypatch):
    """The controls of T14 are measured once for all tests: another margin does not change them."""
    monkeypatch.setattr("mnemoscope.claims.registration.measure_controls", lambda claims: values_of_t14())


@pytest.mark.full
def test_a_registration_is_written_once(tmp_path):
    assert register([T14], tmp_path) == ["T14"]
    before = (tmp_path / FILE).read_bytes()
    assert register([T14], tmp_path) == []
    assert (tmp_path / FILE).read_bytes() == before
    assert read_registrations(tmp_path)["T14"]["replicates"] == {"kind": "seed", "n": 32, "headline": True}
    assert read_registrations(tmp_path / "elsewhere") == read_registrations(None) == {}


@pytest.mark.full
@pytest.mark.usefixtures("measured_once")
def test_what_differs_is_refused_without_a_reason_and_kept_with_one(tmp_path):
    register([T14], tmp_path)
    stricter = replace(T14, margin=0.05)
    with pytest.raises(InputError, match=r"claim T14 is registered otherwise \(criteria\).*--supersede"):
        register([stricter], tmp_path)
    assert register([stricter], tmp_path, reason="the margin was a slip") == ["T14"]
    register([replace(T14, margin=0.1)], tmp_path, reason="so was that")
    content = read_registrations(tmp_path)["T14"]
    assert content["criteria"][0]["margin"] == 0.1
    assert [(old["reason"], old["registration"]["criteria"][0]["margin"]) for old in content["superseded"]] == [
        ("the margin was a slip", 0.0),
        ("so was that", 0.05),
    ]


def trial_of(claim, **changes) -> dict:
    """The record of a trial of a claim."""
    fixed = registration(claim, expected_seeds(claim))
    found = {"id": claim.id, "outcome": "REFUTED", "share": 0.25, "n": 32, "units": fixed["units"], "fixed": fixed}
    return {**found, **changes}


KEPT = {"outcome": "REFUTED", "share": 0.25, "n": 32, "recipe": "published"}


@pytest.mark.usefixtures("measured_once")
def test_a_superseded_registration_keeps_its_verdict(tmp_path, monkeypatch):
    register([T14], tmp_path)
    first, second, third = T14, replace(T14, margin=0.05), replace(T14, margin=0.1)
    register([second], tmp_path, reason="a slip", verdicts=[trial_of(first)])
    register([third], tmp_path, reason="another", verdicts=[trial_of(first), trial_of(second, id="T15")])
    entries = read_registrations(tmp_path)["T14"]["superseded"]
    assert [entry.get("verdict") for entry in entries] == [KEPT, None]
    assert entries[0]["registration"]["criteria"][0]["margin"] == 0.0
    monkeypatch.setattr("mnemoscope.claims.registration.package_of", lambda claim: tmp_path)
    assert superseded_forms(third) == (Superseded(reason="a slip", **KEPT), Superseded(reason="another"))
    assert check_registration(third, expected_seeds(third)).departures == ()


@pytest.mark.usefixtures("measured_once")
def test_a_verdict_can_be_added_later_and_once(tmp_path):
    register([T14], tmp_path)
    now = replace(T14, margin=0.05)
    register([now], tmp_path, reason="a slip")
    assert register([now], tmp_path, verdicts=[trial_of(now)]) == []  # of the claim as it is asked now
    assert register([now], tmp_path, verdicts=[trial_of(T14)]) == ["T14"]
    before = (tmp_path / FILE).read_bytes()
    assert register([now], tmp_path, verdicts=[trial_of(T14, outcome="SUPPORTED")]) == []
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.usefixtures("measured_once")
def test_a_record_that_does_not_say_what_was_fixed_is_of_the_last_one(tmp_path):
    register([T14], tmp_path)
    register([replace(T14, margin=0.05)], tmp_path, reason="a slip")
    old = trial_of(T14)
    del old["fixed"]
    assert register([replace(T14, margin=0.1)], tmp_path, reason="another", verdicts=[old]) == ["T14"]
    assert [entry.get("verdict") for entry in read_registrations(tmp_path)["T14"]["superseded"]] == [None, KEPT]


def test_the_claims_of_the_systems_are_as_registered():
    """A change of what decides a verdict has to be registered: `mnemoscope dev register`, with the reason."""
    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    assert len(claims) == 135
    found = {claim.id: check_registration(claim, expected_seeds(claim)).departures for claim in claims}
    assert {id: what for id, what in found.items() if what != ()} == {}


def test_every_claim_of_the_systems_has_a_version_and_values_of_all_its_controls():
    for claim in map(CLAIMS.get, CLAIMS.names()):
        entry = read_registrations(package_of(claim))[claim.id]
        for one, kept in ((claim, entry), *((rival, entry["rivals"][rival.id]) for rival in claim.rivals)):
            assert kept["version"] == one.version
            assert set(kept["values"]) == {control.name for control in one.controls}, one.id
            effects = {part.name for part in one.criteria}
            assert all(set(values) >= effects for values in kept["values"].values()), one.id


def test_what_was_registered_before_versions_were_counted_is_read():
    """What was superseded stays as it was written; it is like itself, and unlike what took its place."""
    n_found = 0
    for claim in map(CLAIMS.get, CLAIMS.names()):
        entry = read_registrations(package_of(claim))[claim.id]
        each = [old["registration"] for old in entry.get("superseded", [])]
        for old, new in pairwise([*each, entry]):
            assert differences(old, old) == []
            assert differences(old, new) != [], claim.id
            n_found += "version" not in old
    assert n_found > 40


def test_other_seeds_and_margins_are_seen():
    seeds = read_registrations(package_of(T14))["T14"]["seeds"]
    assert check_registration(replace(T14, margin=0.1), seeds[1:]).departures == ("criteria", "seeds")
    assert check_registration(replace(T14, id="T99"), seeds).departures is None


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / FILE).write_text("{")
    with pytest.raises(InputError, match=r"registered\.json cannot be read"):
        read_registrations(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({}))
    assert read_registrations(tmp_path) == {}
