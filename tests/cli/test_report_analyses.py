"""Sections of analyses in a report, from their records."""

import re

import pytest

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
