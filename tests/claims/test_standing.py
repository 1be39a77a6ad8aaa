"""Standing of claims: before their runs, after them, or not registered; shipped dates are those of the history."""

import io
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mnemoscope.claims import history
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.entry import FOLDER, Dated, Verdict, entry_of, entry_text, packaged_entries, write_entry
from mnemoscope.claims.history import history_dates, judging_commits
from mnemoscope.claims.judge import judge
from mnemoscope.claims.registration import FILE, package_of, read_registrations, register, registration
from mnemoscope.claims.replicates import expected_seeds
from mnemoscope.claims.ruling import Ruling, ruling_record
from mnemoscope.claims.standing import Dates, Standing, claim_standing, dates_in, question_of, standing
from mnemoscope.models.run import create_run
from mnemoscope.registry import export, export_entry
from mnemoscope.registry.export import refresh_entries
from mnemoscope.report.rulings.words import describe_standing, standing_word
from tests.claims.trials import clearing, make_claim, make_evidence

T14 = CLAIMS.get("T14")
FIXED = registration(T14, expected_seeds(T14))
EARLY, LATE = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+01:00"
BEFORE = Standing(status="before its runs", registered=EARLY, runs=LATE)


def dated(registered: str, runs: str) -> Standing:
    return standing(FIXED, dates(registered, runs), None)


def dates(registered: str, runs: str) -> Dates:
    return Dates(question=question_of(FIXED), registered=Dated(date=registered), runs=Dated(date=runs))


def test_only_a_registration_before_the_runs_can_confirm():
    assert dated(EARLY, LATE).can_confirm
    assert dated(LATE, EARLY).status == "after its runs"
    assert dated(EARLY, EARLY).status == "after its runs", "one commit shows no order"
    assert dated("2026-01-02T00:30:00+02:00", LATE).can_confirm, "clocks have zones"
    assert standing(None, None, None).status == "not registered"
    assert standing(FIXED, None, None).status == "not dated"


def test_dates_of_another_question_do_not_count():
    changed = registration(replace(T14, margin=-0.1), expected_seeds(T14))
    assert standing(changed, dates(EARLY, LATE), None).status == "not dated"


def test_runs_of_ones_own_have_dates_of_their_own(tmp_path):
    """A claim that is measured again on runs that were trained after it was registered."""
    (unit,) = T14.units.values()
    run = create_run(tmp_path / "seed-900", unit.spec(900))
    assert claim_standing(T14, None).status == "after its runs"
    assert claim_standing(T14, [run]).status == "before its runs"
    content = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**content, "created": "2020-01-01T00:00:00+00:00"}))
    assert claim_standing(T14, [run]).status == "after its runs"
    del content["created"]
    (run.path / "run.json").write_text(json.dumps(content))
    assert claim_standing(T14, [run]).status == "not dated"


@pytest.mark.full
def test_a_registration_is_written_with_its_date(tmp_path):
    register([T14], tmp_path)
    entry = read_registrations(tmp_path)["T14"]
    run = SimpleNamespace(path=tmp_path / "seed-00")
    run.path.mkdir()
    (run.path / "run.json").write_text(json.dumps({"created": "2999-01-01T00:00:00+00:00"}))
    assert standing(entry, None, [run]).can_confirm
    (run.path / "run.json").write_text(json.dumps({"created": EARLY}))
    assert standing(entry, None, [run]).status == "after its runs"


def ruling(**changes) -> Ruling:
    claim, evidence = make_claim(), make_evidence(clearing(16, 16))
    return Ruling(claim=claim, evidence=evidence, verdict=judge(claim, evidence), rivals={}, **changes)


def test_a_verdict_says_how_its_claim_is_registered_and_that_it_has_no_controls():
    """A margin that was chosen afterwards, under a new id."""
    guest, confirmed = ruling(), ruling(standing=BEFORE)
    assert guest.reason.startswith("No control tests the measure.")
    record = ruling_record(guest)
    assert (record["standing"]["status"], record["confirmed"], record["departures"]) == ("not registered", False, [])
    assert describe_standing(guest) == "not registered, so the verdict is exploratory and not confirmed"
    assert confirmed.confirmed
    assert "so the verdict is confirmed" in describe_standing(confirmed)
    assert not ruling(standing=BEFORE, departures=("criteria",)).confirmed
    assert [standing_word(each) for each in (guest, confirmed)] == ["no", "before its runs"]


HISTORY = Path(__file__).parents[2] / ".git"


def git(place: Path, *words: str, date: str = EARLY) -> None:
    who = {f"GIT_{role}_{what}": "ada" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, **who}
    subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True, env=env)


def archived(*seeds: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for seed in seeds:
            file.writestr(f"seed-{seed:02d}/metrics.jsonl", f"log of {seed}")
    return content.getvalue()


def test_dates_come_from_the_history(tmp_path, monkeypatch):
    """The first commit with the question, and the first with each run, though archives are packed again later."""
    archive = tmp_path / "v3-published.zip"
    monkeypatch.setattr(history, "archive_file", lambda label: archive if label == archive.stem else None)
    git(tmp_path, "init", "-q")
    milder = registration(replace(T14, margin=-0.1), [16, 17])
    fixed = registration(T14, [16, 17])
    steps = [
        (FILE, json.dumps({"T14": milder}).encode()),
        (FILE, json.dumps({"T14": fixed}).encode()),
        (archive.name, archived(16)),
        (archive.name, archived(16, 17)),
        (FILE, json.dumps({"T14": {**fixed, "machine": "another"}}).encode()),
    ]
    for day, (name, content) in enumerate(steps, 1):
        (tmp_path / name).write_bytes(content)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", str(day), date=f"2026-01-0{day}T00:00:00+00:00")
    found = history_dates({"T14": T14}, {"T14": fixed}, tmp_path)["T14"]
    assert (found.registered.date[:10], found.runs.date[:10]) == ("2026-01-02", "2026-01-03")
    commits = subprocess.check_output(["git", "-C", tmp_path, "log", "--reverse", "--format=%H"], text=True).split()
    assert [found.registered.commit, found.runs.commit] == commits[1:3]
    assert history_dates({"T14": T14}, {"T14": registration(replace(T14, margin=0.7), [16])}, tmp_path) == {}


def test_a_claim_asked_anew_of_other_questions_is_dated_by_its_own_verdict(tmp_path):
    """Its version is higher; where only the margin is another, the first verdict counts."""
    git(tmp_path, "init", "-q")
    old = {**registration(make_claim(replicate="question"), ()), "version": 1}
    superseded = {"superseded": [{"reason": "other questions", "registration": old}]}
    anew, milder = {**old, "version": 2, **superseded}, {**old, "joined": "any", **superseded}
    steps = [
        (FILE, json.dumps({"T0": old})),
        ("outcome.md", "| T0 | it does | REFUTED |\n"),
        (FILE, json.dumps({"T0": anew})),
        ("outcome.md", "| T0 | it does | SUPPORTED |\n"),
        (FILE, json.dumps({"T0": milder})),
    ]
    for day, (name, content) in enumerate(steps, 1):
        (tmp_path / name).write_text(content)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", str(day), date=f"2026-01-0{day}T00:00:00+00:00")
    claims = {"T0": make_claim(replicate="question")}
    days = {
        what: (found.registered.date[9:10], found.runs.date[9:10])
        for what, form in (("old", old), ("anew", anew), ("milder", milder))
        for found in history_dates(claims, {"T0": form}, tmp_path).values()
    }
    assert days == {"old": ("1", "2"), "anew": ("3", "4"), "milder": ("5", "2")}


PACKAGES = sorted({package for name in CLAIMS.names() if (package := package_of(CLAIMS.get(name)))})


def test_dates_that_ship_are_of_registered_questions():
    for package in PACKAGES:
        for id, registered in read_registrations(package).items():
            found = dates_in(entry_of(package, id))
            assert found is None or found.question == question_of(registered), f"mnemoscope dev entries {id}"


def test_entries_of_verdicts_that_name_their_commit_date_their_runs():
    for _, entry in packaged_entries():
        if any(verdict.judged and verdict.judged.commit for verdict in entry.verdicts if verdict.superseded is None):
            assert entry.registration.runs, f"mnemoscope dev entries {entry.short_id}"


@pytest.mark.thorough
@pytest.mark.skipif(not HISTORY.exists() or (HISTORY / "shallow").exists(), reason="there is no history, or a part")
def test_the_dates_that_ship_are_those_of_the_history():
    commits = judging_commits(PACKAGES[0])
    for package in PACKAGES:
        registered = read_registrations(package)
        found = history_dates({id: CLAIMS.get(id) for id in registered}, registered, package)
        assert {id: dates_in(entry_of(package, id)) for id in found} == found, "mnemoscope dev entries writes them"
        for id in found:
            for verdict in entry_of(package, id).verdicts:
                if verdict.judged is not None and (id, verdict.judged.date) in commits:
                    assert verdict.judged.commit, f"mnemoscope dev entries {id}"


def test_a_verdict_names_the_first_commit_with_it(tmp_path, monkeypatch):
    """A commit that was named before stays, as does a verdict that no commit has."""
    git(tmp_path, "init", "-q")
    claim = make_claim(replicate="draw")
    monkeypatch.setattr(export, "package_of", lambda _: tmp_path)
    first, named, new = (
        Verdict(outcome="MIXED", n_clear=8, n=16, judged=Dated(date=f"2026-01-0{day}", commit=commit))
        for day, commit in ((1, None), (2, "abc"), (3, None))
    )
    before = export_entry(claim)
    for day, verdicts in enumerate(((first,), (named, first), (new, named, first)), 1):
        write_entry(before.model_copy(update={"verdicts": verdicts}), tmp_path / FOLDER)
        if new not in verdicts:
            git(tmp_path, "add", ".")
            git(tmp_path, "commit", "-qm", str(day))
    root = history._git(tmp_path, "rev-list", "--max-parents=0", "HEAD").decode().strip()
    ((_, entry),) = refresh_entries([claim], {}, judging_commits(tmp_path))
    assert [verdict.judged.commit for verdict in entry.verdicts] == [None, "abc", root]
    assert entry_of(tmp_path, "T0") == entry


def test_a_claim_about_draws_is_dated_by_the_verdict_in_its_entry(tmp_path):
    """A superseded verdict is none."""
    git(tmp_path, "init", "-q")
    claim = make_claim(replicate="draw")
    entry = export_entry(claim)
    verdict = {"outcome": "MIXED", "n_clear": 8, "n": 16}
    file = tmp_path / FOLDER / "T0.json"
    file.parent.mkdir()
    fixed = registration(claim)
    steps = [
        (tmp_path / FILE, json.dumps({"T0": fixed})),
        (file, entry_text(entry.model_copy(update={"verdicts": (Verdict(**verdict, superseded="too few"),)}))),
        (file, entry_text(entry.model_copy(update={"verdicts": (Verdict(**verdict),)}))),
    ]
    for day, (place, content) in enumerate(steps, 1):
        place.write_text(content)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", str(day), date=f"2026-01-0{day}T00:00:00+00:00")
    found = history_dates({"T0": claim}, {"T0": fixed}, tmp_path)["T0"]
    assert (found.registered.date[9:10], found.runs.date[9:10]) == ("1", "3")
