"""Registrations on disk: written once, compared with the claims of today, superseded with a reason only."""

import json
from dataclasses import replace

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.judging.claim import CLAIMS
from mnemoscope.sweeps.registered import FILE, departures, package_of, register, registered

T14 = CLAIMS.get("T14")


def test_a_registration_is_written_once(tmp_path):
    assert register([T14], tmp_path) == ["T14"]
    before = (tmp_path / FILE).read_bytes()
    assert register([T14], tmp_path) == []
    assert (tmp_path / FILE).read_bytes() == before
    assert registered(tmp_path)["T14"]["replicates"] == {"kind": "seed", "n": 32, "headline": True}
    assert registered(tmp_path / "elsewhere") == registered(None) == {}


def test_what_differs_is_refused_without_a_reason_and_kept_with_one(tmp_path):
    register([T14], tmp_path)
    milder = replace(T14, margin=-0.1)
    with pytest.raises(InputError, match=r"claim T14 is registered otherwise \(criteria\).*--supersede"):
        register([milder], tmp_path)
    assert register([milder], tmp_path, reason="the margin was a slip") == ["T14"]
    register([replace(T14, margin=-0.2)], tmp_path, reason="so was that")
    content = registered(tmp_path)["T14"]
    assert content["criteria"][0]["margin"] == -0.2
    assert [(old["reason"], old["registration"]["criteria"][0]["margin"]) for old in content["superseded"]] == [
        ("the margin was a slip", 0.0),
        ("so was that", -0.1),
    ]


def test_the_claims_of_the_systems_are_as_registered():
    """A change of what decides a verdict has to be registered: `mnemoscope claims register`, with the reason."""
    from mnemoscope.judging.registration import expected_seeds

    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    assert len(claims) == 43
    found = {claim.id: departures(claim, expected_seeds(claim)) for claim in claims}
    assert {id: what for id, what in found.items() if what != ()} == {}


def test_other_seeds_and_margins_are_seen():
    seeds = registered(package_of(T14))["T14"]["seeds"]
    assert departures(replace(T14, margin=0.1), seeds[1:]) == ("criteria", "seeds")
    assert departures(replace(T14, id="T99"), seeds) is None


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / FILE).write_text("{")
    with pytest.raises(InputError, match=r"registered\.json cannot be read"):
        registered(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({}))
    assert registered(tmp_path) == {}
