"""Verdicts of trials in entries: numbers are filled in, other outcomes need a reason, other questions are refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mnemoscope.claims.entry import Verdict
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.ruling import Ruling, ruling_record
from mnemoscope.core.errors import InputError
from mnemoscope.registry import export_entry, read_registry, with_replication, with_verdict
from mnemoscope.registry.changes import registry_changes
from tests.claims.trials import along_seeds, clearing, make_claim, make_evidence

CLAIM = make_claim(replicate="seed", system="toy", unit="accuracy")


def record(evidence: Evidence, **changes) -> dict:
    claim = replace(CLAIM, **changes)
    ruling = Ruling(claim=claim, evidence=evidence, verdict=judge(claim, evidence), rivals={})
    return json.loads(json.dumps(ruling_record(ruling)))


def test_a_verdict_comes_with_all_its_numbers():
    effects = np.linspace(CLAIM.margin + 0.1, CLAIM.margin + 0.3, 16)
    found = with_verdict(export_entry(CLAIM), record(Evidence(effects=along_seeds(effects))), report="here").verdict
    assert found is not None
    assert (found.outcome, found.n_clear, found.n, found.n_failed) == ("SUPPORTED", 16, 16, 0)
    assert found.effect == pytest.approx(effects.mean())
    assert found.sd == pytest.approx(effects.std(ddof=1))
    assert (found.deciding, found.parts[0].sd) == ("effect", found.sd)
    assert (found.error_rate, found.confirmed, found.report) == (0.005, False, "here")
    assert found.p is not None
    assert found.p <= 0.005


def test_an_equal_outcome_fills_in_the_numbers():
    entry = export_entry(CLAIM)
    counts = Verdict(outcome="SUPPORTED", n_clear=16, n=16, question=entry.registration.question, report="there")
    entry = entry.model_copy(update={"verdicts": (counts,)})
    after = with_verdict(entry, record(make_evidence(clearing(16, 16))))
    assert len(after.verdicts) == 1
    assert after.verdict is not None
    assert after.verdict.effect is not None
    assert after.verdict.report == "there"
    assert with_verdict(after, record(make_evidence(clearing(16, 16)))).verdicts[0].p == after.verdict.p


def test_another_outcome_needs_a_reason_and_keeps_the_earlier_one():
    before = with_verdict(export_entry(CLAIM), record(make_evidence(clearing(16, 16))))
    refuting = record(make_evidence(clearing(0, 16)))
    with pytest.raises(InputError, match="is SUPPORTED on record, and REFUTED in this trial; say with --reason"):
        with_verdict(before, refuting)
    after = with_verdict(before, refuting, reason="a fault in the measure was mended")
    assert [each.outcome for each in after.verdicts] == ["SUPPORTED", "REFUTED"]
    assert after.verdicts[0].superseded == "a fault in the measure was mended"
    assert after.verdict == after.verdicts[1]
    (row,) = registry_changes({before.id: before}, {after.id: after})
    assert row[1:] == ["another verdict", "SUPPORTED, 16 of 16 → REFUTED, 0 of 16", "a fault in the measure was mended"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (record(make_evidence(clearing(16, 16)), margin=0.2), "was of another question"),
        (record(make_evidence(clearing(4, 4))), "gave no verdict"),
    ],
)
def test_a_trial_of_something_else_is_refused(given, fault):
    with pytest.raises(InputError, match=fault):
        with_verdict(export_entry(CLAIM), given)


def test_a_record_without_the_deciding_part_is_told_it_by_the_effect():
    given = record(make_evidence(clearing(16, 16)))
    plain = {name: value for name, value in given.items() if name not in ("deciding", "n_clear")}
    found = with_verdict(export_entry(CLAIM), plain).verdict
    assert found is not None
    assert (found.deciding, found.n_clear) == ("effect", 16)


def test_changes_name_what_came_and_went():
    old, new = (export_entry(make_claim(id=id, system="toy")) for id in ("T1", "T2"))
    later = export_entry(make_claim(id="T1", system="toy", version=2))
    assert registry_changes({old.id: old}, {old.id: old}) == []
    rows = registry_changes({old.id: old}, {later.id: later, new.id: new})
    assert rows == [
        ["mnemo:toy/T1", "version 1 → 2", "not tried", ""],
        ["mnemo:toy/T2", "new claim", "not tried", ""],
    ]


def replication(**changes) -> dict:
    found = {"claim": CLAIM.id, "by": "somebody", "code": "there.py", "outcome": "REFUTED", "n_clear": 1, "n": 16}
    return {**found, "tolerance": "2 seeds", "agrees": False, **changes}


def test_a_replication_stands_beside_verdicts_and_takes_the_place_of_an_earlier_one():
    before = with_verdict(export_entry(CLAIM), record(make_evidence(clearing(16, 16))))
    first = with_replication(before, replication())
    assert first.verdicts == before.verdicts
    assert [(each.outcome, each.agrees) for each in first.replications] == [("REFUTED", False)]
    again = with_replication(first, replication(outcome="SUPPORTED", n_clear=16, agrees=True))
    assert [(each.outcome, each.agrees) for each in again.replications] == [("SUPPORTED", True)]
    assert len(with_replication(again, replication(code="elsewhere.py")).replications) == 2


@pytest.mark.parametrize(
    ("change", "fault"), [({"n": "many"}, "n: Input should be a valid integer"), ({"mood": "good"}, "mood: Extra")]
)
def test_a_replication_at_fault_is_refused(change, fault):
    with pytest.raises(InputError, match=f"the replication of {CLAIM.id} is at fault: {fault}"):
        with_replication(export_entry(CLAIM), replication(**change))


def test_entries_have_the_replications_of_the_repository():
    results = json.loads((Path(__file__).parents[2] / "replications/results.json").read_text(encoding="utf-8"))
    entries = {entry.short_id: entry for entry in read_registry().values()}
    assert len(results) > 12
    for each in results:
        entry = entries[each["claim"]]
        assert with_replication(entry, each) == entry, "mnemoscope claims import replications/results.json adds them"
