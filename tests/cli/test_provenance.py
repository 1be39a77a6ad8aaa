"""What the page of a verdict says of its code and its runs."""

import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.replicates import admit_runs
from mnemoscope.cli import provenance
from mnemoscope.cli.provenance import locate_claim, locate_function, provenance_html
from mnemoscope.models.run import open_run
from mnemoscope.models.zoo import unpack_word
from tests.report.rulings.made_up import simple

OF_RUNS = "T1"


@pytest.mark.parametrize("name", CLAIMS.names())
@pytest.mark.every_case
def test_every_claim_and_its_measure_are_found_in_the_code(name):
    claim = CLAIMS.get(name)
    place, measure = locate_claim(claim), locate_function(claim.measure)
    stated = place.file.read_text().splitlines()[place.line - 1]
    named = next((name for name, value in vars(sys.modules[place.module]).items() if value == claim), None)
    assert f'"{claim.id}"' in stated or stated.startswith(f"{named} = ")
    lines = measure.file.read_text().splitlines()[measure.line - 1 :]
    assert next(line for line in lines if not line.startswith("@")).startswith("def ")
    assert str(place) == f"{place.module}, line {place.line}"


def test_bound_arguments_do_not_hide_a_function():
    assert locate_function(partial(partial(locate_function, 1), 2)) == locate_function(locate_function)
    assert locate_function(len) is None


def ruling_of(claim):
    return replace(simple("T1", 8), claim=claim)


def test_runs_are_linked_where_they_lie_and_the_zoo_is_named(trained_once, tmp_path):
    claim = CLAIMS.get(OF_RUNS)
    unit = next(iter(claim.units.values()))
    runs = [open_run(path) for path in unpack_word(f"zoo:{unit.spec(0).label}")]
    text = " ".join(provenance_html(ruling_of(claim), admit_runs(runs, [claim]), ["--zoo"], tmp_path))
    assert f"<code>zoo:{unit.spec(0).label}</code>" in text
    assert 'href="../' not in text.partition("The runs")[2].partition("What was measured")[0]
    (tmp_path / "runs").mkdir()
    for run in runs:
        (tmp_path / f"runs/seed-{run.spec.seed}").symlink_to(run.path)
    admitted = admit_runs([open_run(path) for path in (tmp_path / "runs").iterdir()], [claim])
    text = " ".join(provenance_html(ruling_of(claim), admitted, [], tmp_path / "verdicts"))
    seed = admitted.seeds(claim)[0]
    assert f'<a href="../runs/seed-{seed}">{seed}</a>' in text


@pytest.mark.parametrize("label", ["Source", "Homepage", None])
def test_code_is_linked_where_the_package_says_where_it_is(label, tmp_path, monkeypatch):
    entries = [] if label is None else [f"{label}, https://code.example/mnemoscope/"]
    monkeypatch.setattr(provenance.metadata, "metadata", lambda name: SimpleNamespace(get_all=lambda key: entries))
    monkeypatch.chdir(tmp_path)
    claim = CLAIMS.get(OF_RUNS)
    text = " ".join(provenance_html(ruling_of(claim), admit_runs([], [claim]), [], tmp_path))
    assert re.search(r"The claim: .*mnemoscope\.systems\.tiny_recall\.claims\.\w+, line \d+", text)
    linked = "https://code.example/mnemoscope/blob/HEAD/src/mnemoscope/systems/tiny_recall/claims/" in text
    assert linked == (label == "Source")
    monkeypatch.chdir(Path(__file__).parents[2])
    text = " ".join(provenance_html(ruling_of(claim), admit_runs([], [claim]), [], Path("reports")))
    if label != "Source":
        assert 'href="../src/mnemoscope/systems/tiny_recall/claims/' in text
