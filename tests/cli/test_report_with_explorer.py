"""`mnemoscope report --explore`: the page in which models run beside the report, and a link to it."""

import json
import re

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.cli.commands.report import _explorer
from tests.support import small_spec


def models_in(page):
    found = re.search(r'id="explorer-data"[^>]*>(.*?)</script>', page.read_text())
    assert found is not None
    return [(run["label"], run["seed"]) for run in json.loads(found[1])["runs"]]


def test_the_report_links_the_explorer_that_is_written_beside_it(tiny, tmp_path, capsys):
    main(["report", str(tiny.path), "--out", str(tmp_path / "plain.html")])
    assert "explorer.html" not in (tmp_path / "plain.html").read_text()
    main(["report", str(tiny.path), "--explore", "--out", str(tmp_path / "report.html")])
    assert f"wrote {tmp_path / 'explorer.html'}: 1 model" in " ".join(capsys.readouterr().out.split())
    assert '<a href="explorer.html">' in (tmp_path / "report.html").read_text()
    assert models_in(tmp_path / "explorer.html") == [(tiny.label, tiny.spec.seed)]
    main(["index", str(tmp_path)])
    assert 'href="explorer.html"' in (tmp_path / "index.html").read_text()


def test_the_first_seed_of_every_configuration_is_there_and_what_is_refused_is_said(
    trained_once, tiny, tmp_path, capsys
):
    second = trained_once("tiny/second", small_spec("v3", seed=1))
    vectors = ms.find_runs("zoo:retrieval-2-1-layer-quick")[0]
    assert _explorer(tmp_path / "explorer.html", [vectors]) is None
    assert "is not in the explorer: " in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "explorer.html").exists()
    assert _explorer(tmp_path / "explorer.html", [vectors, tiny, second]) == "explorer.html"
    assert models_in(tmp_path / "explorer.html") == [(tiny.label, tiny.spec.seed)]
