"""Verdicts on record are those of the reports in `experiments`, and every claim has one or is known to have none."""

import re
from collections import Counter
from pathlib import Path

import pytest

from mnemoscope.claims import recorded_verdicts
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.entry import FOLDER
from mnemoscope.claims.registration import package_of
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError

ROOT = Path(__file__).parents[2]
NOT_TRIED = {
    "L1",
    "L2",
}
"""They ask for models that are too large: `docs/outcomes.md` says so."""


def reported() -> dict[str, tuple[str, int, int, str]]:
    """By claim what the tables of verdicts say: outcome, how many replicates clear the margin, of how many; where."""
    found = {}
    for page in sorted((ROOT / "experiments").glob("*/README.md")):
        header: list[str] = []
        for line in page.read_text().splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if cells[:3] == ["", "claim", "verdict"]:
                header = cells
            elif header and cells and not cells[0].startswith("-"):
                row = dict(zip(header, cells, strict=True))
                counts = next(row[name] for name in ("seeds", "draws", "replicates", "questions") if name in row)
                n_clear, n = map(int, re.findall(r"\d+", counts)[:2])
                found[row[""].split()[0]] = (row["verdict"], n_clear, n, f"experiments/{page.parent.name}")
            elif not cells:
                header = []
    return found


def test_verdicts_on_record_are_those_of_the_reports():
    tables = reported()
    found = recorded_verdicts()
    assert len(found) > 60
    for id, verdict in found.items():
        assert (verdict.outcome, verdict.n_clear, verdict.n, verdict.source) == tables[id], id


def test_every_claim_has_a_verdict_or_is_known_to_have_none():
    names = {name for name in CLAIMS.names() if (CLAIMS.get(name).measure and _ours(name))}
    found = recorded_verdicts()
    assert names - found.keys() == NOT_TRIED
    assert not NOT_TRIED & reported().keys()
    for id, verdict in found.items():
        claim = CLAIMS.get(id)
        assert (verdict.recipe, verdict.replicate) == (claim.recipe, claim.replicate), id
        assert bool(verdict.asked_of) == claim.of_language_models, id


def _ours(name: str) -> bool:
    place = package_of(CLAIMS.get(name))
    return place is not None and ROOT in place.resolve().parents


def test_the_page_of_outcomes_counts_them_alike():
    text = " ".join((ROOT / "docs" / "outcomes.md").read_text().split())
    of = {id: CLAIMS.get(id).system for id in recorded_verdicts()}
    counts = Counter((of[id], verdict.outcome) for id, verdict in recorded_verdicts().items())
    tiny = [counts["tiny-recall", outcome] for outcome in ("SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE")]
    assert (
        "Of the {} claims on tiny-recall {} are supported, {} refuted, {} mixed and {} undecided".format(
            sum(tiny), *tiny
        )
        in text
    )


def test_words():
    verdict = recorded_verdicts()["F1"]
    assert str(verdict) == "MIXED, 10 of 16"
    assert verdict.in_full == "MIXED, 10 of 16 draws (experiments/2026-factual-recall)"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("[]", "entry: "),
        ("{", "no JSON"),
        ('{"outcome": "MIXED"}', "id: Field required"),
        ('{"format": 2}', "format: 2 is newer"),
    ],
)
def test_a_file_of_something_else_is_refused(content, fault, tmp_path, monkeypatch):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "T1.json").write_text(content)
    monkeypatch.setattr(guests, "location", lambda guest: tmp_path)
    with pytest.raises(InputError, match=rf"T1\.json: {fault}"):
        recorded_verdicts()
