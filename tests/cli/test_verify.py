"""`claims verify` as a user types it."""

import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.store import entry_of
from mnemoscope.cli import main
from mnemoscope.core import guests

GUEST = """
import mnemoscope as ms

def drawn(draw, *, side=1):
    return {"effect": 1.0 + draw * side}

ms.CLAIMS.add("X", ms.Claim(id="X", statement="Draws are positive.", source="ours", quantifier="most", margin=0.0,
                            replicate="draw", measure=drawn, choices={"side": (-1,)}))
"""
TRIAL = ("--import", "drawn_guest.py", "X", "--out", "tried", "--jobs", "1")


@pytest.fixture(autouse=True)
def tried(tmp_path, monkeypatch, as_installed, capsys):
    """A trial of the guest's claim, whose output is returned; the guest does not stay."""
    monkeypatch.chdir(tmp_path)
    Path("drawn_guest.py").write_text(GUEST, encoding="utf-8")
    CLAIMS.names()  # those of the package are there before
    with mock.patch.dict(CLAIMS._items), mock.patch.dict(guests._invited):
        main(["claims", "run", *TRIAL])
        yield capsys.readouterr().out
    sys.modules.pop("drawn_guest", None)


def test_a_guest_without_registration_is_exploratory(tried):
    assert "all other verdicts are exploratory" in tried
    (record,) = json.loads(Path("tried/verdicts.json").read_text(encoding="utf-8"))
    assert record["standing"]["status"] == "not registered"
    assert "None" not in str(record["departures"])
    page = Path("tried/report.html").read_text(encoding="utf-8")
    assert "Not registered, so the verdict is exploratory and not confirmed." in page
    assert "No control tests the measure." in page


@pytest.mark.full
def test_what_was_verified_is_printed_and_said_by_the_next_trial(capsys):
    main(["claims", "verify", *TRIAL, "--share", "0.25", "--seed", "7"])
    text = capsys.readouterr().out
    assert "--seed 7" in text
    assert "4 of 16 measurements taken again (seed 7) and equal" in text
    main(["claims", "run", *TRIAL])
    (record,) = json.loads(Path("tried/verdicts.json").read_text(encoding="utf-8"))
    assert record["verified"].startswith("4 of 16 measurements taken again (seed 7) and equal (")
    assert "4 of 16 measurements taken again" in Path("tried/report.html").read_text(encoding="utf-8")


def test_something_that_differs_ends_it_with_an_error(capsys):
    for file in Path("tried/measured").rglob("*-3.json"):
        file.write_text(file.read_text().replace("4.0", "0.0"))
    with pytest.raises(SystemExit) as ended:
        main(["claims", "verify", *TRIAL, "--share", "1"])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert "differs by" in out
    assert "in the evidence differ" in err


@pytest.mark.full
def test_measurements_of_a_multiverse_are_taken_again_too(capsys):
    main(["claims", "run", *TRIAL, "--multiverse"])
    main(["claims", "verify", *TRIAL, "--share", "1", "--seed", "7"])
    assert "32 of 32 measurements taken again (seed 7) and equal" in capsys.readouterr().out
    (file,) = Path("tried/measured").rglob("*-3.json")
    entries = json.loads(file.read_text())
    (key,) = (key for key in entries if "side" in key)
    name = file.relative_to("tried/measured").with_suffix("").as_posix()
    entries[key] = entry_of(name, key, entries[key]["stamp"], {"effect": 9.0})  # with a digest of its own
    file.write_text(json.dumps(entries))
    with pytest.raises(SystemExit) as ended:
        main(["claims", "verify", *TRIAL, "--share", "1"])
    assert ended.value.code == 2
    assert "differs by" in capsys.readouterr().out


@pytest.mark.full
def test_runs_of_the_trial_are_asked_for(capsys):
    with pytest.raises(SystemExit):
        main(["claims", "verify", "T14"])
    assert "needs the runs of the trial" in capsys.readouterr().err
