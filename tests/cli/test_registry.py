"""The commands of the registry: entries go out and come back, faults end with their number, registries are compared."""

import json
from pathlib import Path

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.entry import entry_of, packaged_entries, read_entry, write_entry
from mnemoscope.claims.registration import package_of, registration
from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.cli import main
from tests.registry.cases import make_entry

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def text(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def record(id: str, outcome: str, n_clear: int) -> dict:
    """A record of a trial of a claim, as it is registered."""
    numbers = {"share": n_clear / 16, "share_interval": [0, 1], "effect": 0.9, "effect_interval": [None, 1.0]}
    return {
        "id": id,
        "outcome": outcome,
        **numbers,
        "unit": "accuracy",
        "p": 0.001,
        "n": 16,
        "n_failed": 0,
        "reason": "",
        "parts": [{"name": CLAIMS.get(id).criteria[0].name, **numbers, "sd": 0.1}],
        "rivals": [],
        "recipe": CLAIMS.get(id).recipe or None,
        "models": [],
        "confirmed": False,
        "false_discovery_rate": None,
        "fixed": registration(CLAIMS.get(id), expected_seeds(CLAIMS.get(id))),
    }


def test_entries_go_out_and_are_valid(capsys):
    main(["claims", "export", "k-hop", "--out", "entries"])
    assert "wrote 5 claims to entries" in text(capsys)
    for file in Path("entries").iterdir():
        assert read_entry(file) == entry_of(package_of(CLAIMS.get(file.stem)), file.stem)
    main(["claims", "validate", "entries"])
    assert "5 entry files, no fault" in text(capsys)
    main(["claims", "diff", "entries", "entries"])
    assert "the two agree in every verdict of 5 claims" in text(capsys)


def test_faults_are_listed_with_their_fields(capsys):
    write_entry(make_entry(verdict={"n_clear": 17}), Path("entries"))
    with pytest.raises(SystemExit) as ended:
        main(["claims", "validate", "entries"])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert "entries/T1.json: verdicts.0.n_clear: 17 of 16 judged replicates" in printed.out
    assert "1 fault in 1 of 1 entry file" in printed.err
    with pytest.raises(SystemExit):
        main(["claims", "import", "entries"])
    assert "entries/T1.json: verdicts.0.n_clear" in capsys.readouterr().err


def test_verdicts_of_a_trial_come_into_copies_of_entries(capsys, monkeypatch):
    """K3 is supported on record, and K4 as if it had not been tried."""
    entries = [
        (file, entry.model_copy(update={"verdicts": ()}) if entry.short_id == "K4" else entry)
        for file, entry in packaged_entries()
    ]
    monkeypatch.setattr("mnemoscope.claims.entry.packaged_entries", lambda: entries)
    Path("verdicts.json").write_text(
        json.dumps([record("K3", "SUPPORTED", 15), record("K4", "REFUTED", 0)]), encoding="utf-8"
    )
    main(["claims", "import", "verdicts.json", "--out", "out", "--report", "experiments/mine"])
    assert "not tried │ REFUTED, 0 of 16" in text(capsys)
    on_file = entry_of(package_of(CLAIMS.get("K3")), "K3")
    imported = read_entry(Path("out/mnemo/k-hop/K3.json"))
    assert on_file is not None
    assert (len(imported.verdicts), imported.verdict.sd) == (len(on_file.verdicts), 0.1)
    assert imported.verdict.judged == on_file.verdict.judged
    assert read_entry(Path("out/mnemo/k-hop/K4.json")).verdict.report == "experiments/mine"
    assert entry_of(package_of(CLAIMS.get("K3")), "K3") == on_file
    Path("verdicts.json").write_text(json.dumps([record("K3", "REFUTED", 0)]), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["claims", "import", "verdicts.json", "--out", "again"])
    assert "say with --reason why" in capsys.readouterr().err
    assert not Path("again").exists()


def test_entries_of_others_are_read_and_another_claim_under_a_known_id_is_refused(capsys):
    write_entry(make_entry(id="ada:toy/T1@1"), Path("theirs"))
    main(["claims", "import", "theirs", "--out", "out"])
    assert "ada:toy/T1@1" in text(capsys)
    assert read_entry(Path("out/ada/toy/T1.json")) == make_entry(id="ada:toy/T1@1")
    write_entry(make_entry(id="mnemo:tiny-recall/T14@1"), Path("theirs"))
    with pytest.raises(SystemExit):
        main(["claims", "import", "theirs"])
    assert "mnemo:tiny-recall/T14@1 asks another question in an installed package" in capsys.readouterr().err


def test_diff_of_registries_says_which_verdicts_changed(capsys):
    write_entry(make_entry(), Path("old"))
    earlier = {**make_entry().verdicts[0].model_dump(), "superseded": "seeds were added"}
    later = {**earlier, "superseded": None, "outcome": "MIXED", "n_clear": 9, "share": 9 / 16, "confirmed": False}
    write_entry(make_entry(verdicts=[earlier, later]), Path("new"))
    main(["claims", "diff", "old", "new"])
    assert "SUPPORTED, 15 of 16 → MIXED, 9 of 16" in text(capsys)


def test_the_entries_of_a_package_are_refreshed(tmp_path, monkeypatch, capsys):
    """What is written by hand stays; the rest is that of the code."""
    before = entry_of(package_of(CLAIMS.get("K1")), "K1")
    assert before is not None
    edited = before.model_copy(update={"notes": "mine", "statement": "stale"})
    write_entry(edited, tmp_path / "registry")
    monkeypatch.setattr("mnemoscope.claims.registration.package_of", lambda claim: tmp_path)
    monkeypatch.setattr("mnemoscope.registry.export.package_of", lambda claim: tmp_path)
    (tmp_path / "registered.json").write_text("{}")
    main(["dev", "entries", "K1", "--no-history"])
    assert "wrote 1 claim to" in text(capsys)
    after = read_entry(tmp_path / "registry" / "K1.json")
    assert (after.notes, after.statement, after.kind) == ("mine", before.statement, before.kind)
