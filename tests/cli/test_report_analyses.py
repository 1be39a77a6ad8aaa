"""Sections of analyses in a report, from their records."""

import re

import pytest

import mnemoscope as ms
from mnemoscope.cli import main


@pytest.mark.full
def test_sections_of_analyses_come_from_their_records(four_values, tmp_path):
    page = tmp_path / "report.html"
    main(["report", str(four_values.path), "--no-explore", "--analyses", "attention-entropy", "--out", str(page)])
    html = page.read_text()
    [_, section] = html.split(">Attention-entropy</h2>")
    assert "Entropy of attention as a share of the largest" in section
    assert "It shows how sharp attention is." in section
    assert re.search(r"<h3[^>]*>" + re.escape(four_values.label), section)


def test_an_unknown_analysis_is_refused_before_anything_is_measured(four_values, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["report", str(four_values.path), "--analyses", "entropi", "--out", str(tmp_path / "report.html")])
    assert end.value.code == 2
    assert "--analyses must be one of" in (said := capsys.readouterr().err)
    assert "'entropi'" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_features_of_a_dictionary_have_a_section_and_stand_in_the_explorer(tmp_path, monkeypatch):
    """Without the option there is neither."""
    monkeypatch.chdir(tmp_path)
    run = ms.open_run("zoo:v3-quick/seed-16")
    found = ms.train_dictionary(run, recipe=ms.DictionaryRecipe(width=0.25, k=4, n_steps=30))
    ms.save_dictionary(found, tmp_path / "few.safetensors")
    main(["report", "zoo:v3-quick/seed-16", "--dictionary", "few.safetensors"])
    html = (tmp_path / "report.html").read_text()
    [_, section] = html.split(">Features of layer 0</h2>")
    assert "fraction of each skill (accuracy) with k features kept" in section
    assert "Its error stays as it is" in section
    with_features = (tmp_path / "report-explorer.html").stat().st_size
    main(["report", "zoo:v3-quick/seed-16", "--out", "plain.html"])
    assert "Features of layer" not in (tmp_path / "plain.html").read_text()
    assert with_features > (tmp_path / "plain-explorer.html").stat().st_size
