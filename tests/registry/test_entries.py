"""Entries of the packages: written as they are read, those of all claims, up to date with the code."""

import json
from pathlib import Path

import jsonschema
import pytest

from mnemoscope.claims import entry as entries
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.entry import (
    Entry,
    Replication,
    entry_of,
    entry_text,
    packaged_entries,
    parse_entry,
    read_entry,
    schema_text,
    write_entry,
)
from mnemoscope.claims.registration import package_of, registration
from mnemoscope.core.errors import InputError
from mnemoscope.registry import export_entry, read_registry
from mnemoscope.registry.export import _with_earlier_forms, registration_digest
from tests.claims.trials import make_claim
from tests.registry.cases import make_entry

PACKAGE = Path(entries.__file__).parents[1]
SCHEMA = PACKAGE / "registry" / "published" / "schema" / "claim-1.json"


def ours() -> list[str]:
    return [name for name in CLAIMS.names() if (place := package_of(CLAIMS.get(name))) and PACKAGE in place.parents]


def test_files_are_written_as_they_are_read():
    found = [(file, entry) for file, entry in packaged_entries() if PACKAGE in file.parents]
    assert len(found) == len(ours())
    for file, entry in found:
        assert file.read_bytes() == entry_text(entry).encode(), f"mnemoscope dev entries {entry.short_id}"
        assert file.stem == entry.short_id


def test_every_claim_has_an_entry_with_what_is_written_by_hand():
    for name in ours():
        claim = CLAIMS.get(name)
        entry = entry_of(package_of(claim), name)
        assert entry is not None, f"mnemoscope dev entries {name}"
        assert entry.kind, name
        assert entry.methods, name
        assert (entry.source.paper is None) == claim.source.startswith("ours"), name
        assert all(verdict.report for verdict in entry.verdicts if verdict.superseded is None), name


@pytest.mark.full
def test_entries_are_those_of_the_code():
    for name in ours():
        claim = CLAIMS.get(name)
        before = entry_of(package_of(claim), name)
        assert export_entry(claim, before) == before, f"mnemoscope dev entries {name}"


def test_the_schema_is_that_of_the_model_and_entries_follow_it():
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()
    schema = json.loads(schema_text())
    check = jsonschema.Draft202012Validator(schema)
    check.check_schema(schema)
    assert schema["$id"] == make_entry().schema_
    for entry in list(read_registry().values())[::10]:
        assert not list(check.iter_errors(json.loads(entry_text(entry))))
    assert list(check.iter_errors({**json.loads(entry_text(make_entry())), "colour": "blue"}))


def test_layout_does_not_matter_to_a_reader():
    entry = make_entry(seeds=list(range(80)), statement='Größe {of} [brackets], "quotes"\n')
    again = json.dumps(json.loads(entry_text(entry)), indent=4)
    assert parse_entry(again, "again") == entry
    assert '\n  "seeds": [0, 1, 2' in entry_text(entry)


def test_what_is_written_by_hand_survives_an_export(tmp_path):
    claim = CLAIMS.get("T14")
    on_file = entry_of(package_of(claim), "T14")
    assert on_file is not None
    replication = Replication(
        by="ada", code="elsewhere", outcome="REFUTED", n_clear=0, n=16, tolerance="1e-3", agrees=True
    )
    by_hand = {"notes": "mine", "kind": "capacity", "methods": ("probing",), "replications": (replication,)}
    edited = on_file.model_copy(update={**by_hand, "statement": "stale"})
    file = write_entry(edited, tmp_path)
    after = export_entry(claim, read_entry(file))
    assert after == on_file.model_copy(update=by_hand)


def test_a_claim_without_an_entry_gets_one():
    entry = export_entry(make_claim(id="T0", system="toy", version=2))
    assert (entry.id, entry.version, entry.short_id, entry.kind) == ("mnemo:toy/T0@2", 2, "T0", None)
    assert entry.registration.standing == "not registered"
    with pytest.raises(InputError, match="claim a claim has no entry: id: "):
        export_entry(make_claim(id="a claim"))


def test_an_earlier_form_leaves_its_verdict_with_the_reason():
    """Also the one that counted, if it answers the question of the earlier form."""
    then = registration(make_claim(id="T0", version=1))
    now = registration(make_claim(id="T0", version=2))
    verdict = {"outcome": "MIXED", "share": 0.5, "n": 16, "recipe": None}
    fixed = {**now, "superseded": [{"reason": "too mild", "registration": then, "verdict": verdict}]}
    (added,) = _with_earlier_forms((), fixed)
    assert (added.outcome, added.n_clear, added.n, added.version, added.superseded) == ("MIXED", 8, 16, 1, "too mild")
    assert _with_earlier_forms((added,), fixed) == (added,)
    counted = added.model_copy(update={"superseded": None, "effect": 0.3})
    assert _with_earlier_forms((counted,), fixed) == (counted.model_copy(update={"superseded": "too mild"}),)
    present = counted.model_copy(update={"question": None, "outcome": "SUPPORTED"})
    assert _with_earlier_forms((present,), fixed) == (added, present)


def test_the_digest_of_a_registration_is_that_of_what_is_fixed():
    fixed = registration(CLAIMS.get("T14"))
    rival = next(iter(fixed["rivals"]))
    assert registration_digest({**fixed, "machine": "another", "values": {}}) == registration_digest(fixed)
    changed = {**fixed, "rivals": {**fixed["rivals"], rival: {**fixed["rivals"][rival], "joined": "any"}}}
    assert registration_digest(changed) != registration_digest(fixed)


def test_ids_are_read_once(tmp_path):
    entry = make_entry()
    write_entry(entry, tmp_path / "a")
    write_entry(entry, tmp_path / "b")
    with pytest.raises(InputError, match="mnemo:toy/T1@1 occurs twice"):
        read_registry([tmp_path])
    assert read_registry([tmp_path / "a"]) == {entry.id: entry}
    with pytest.raises(InputError, match="holds no entries"):
        read_registry([Path(__file__).parent])
    assert isinstance(entry, Entry)
