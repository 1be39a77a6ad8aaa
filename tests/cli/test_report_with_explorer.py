"""The page in which models run, beside every report on models that read tokens, and the link to it."""

import json
import re

import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.cli.commands.report import _logged_by_all, analyse_all
from mnemoscope.explorer import content
from mnemoscope.explorer.packing import checkpoint_bytes
from mnemoscope.explorer.page import first_seeds
from mnemoscope.models.run import Run
from tests.support import foreign_model, small_spec


def runs_in(page):
    found = re.search(r'id="explorer-data"[^>]*>(.*?)</script>', page.read_text())
    assert found is not None
    return json.loads(found[1])["runs"]


@pytest.mark.thorough
def test_the_report_links_the_explorer_that_is_written_beside_it_unless_it_is_declined(tiny, tmp_path, capsys):
    main(["report", str(tiny.path), "--no-explore", "--out", str(tmp_path / "plain.html")])
    assert "explorer.html" not in (tmp_path / "plain.html").read_text()
    assert not (tmp_path / "plain-explorer.html").exists()
    main(["report", str(tiny.path), "--out", str(tmp_path / "report.html")])
    assert f"wrote {tmp_path / 'report-explorer.html'}: 1 model" in " ".join(capsys.readouterr().out.split())
    assert '<a href="report-explorer.html">' in (tmp_path / "report.html").read_text()
    assert [(run["label"], run["seed"]) for run in runs_in(tmp_path / "report-explorer.html")] == [
        (tiny.label, tiny.spec.seed)
    ]
    main(["index", str(tmp_path)])
    assert 'href="report-explorer.html"' in (tmp_path / "index.html").read_text()


@pytest.mark.full
def test_roles_and_costs_are_those_of_the_report_and_are_not_measured_again(tiny, tmp_path, monkeypatch):
    [(entry, results)] = analyse_all([tiny], 1)
    monkeypatch.setattr(content, "without_parts", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr("mnemoscope.cli.commands.report.analyse_all", lambda *_: [(entry, results)])
    main(["report", str(tiny.path), "--out", str(tmp_path / "report.html")])
    [run] = runs_in(tmp_path / "report-explorer.html")
    removed = results[tiny.label]["ablation"].sel(seed=tiny.spec.seed, kind="mean")
    assert run["roles"] == dict(zip(removed.component.values.tolist(), removed.role.values.tolist(), strict=True))
    assert run["needs"]["n"] == removed.attrs["n"]
    for name, role in run["roles"].items():
        assert run["needs"]["without"][name] == removed.accuracy.sel(role=role).values.tolist()


def test_the_first_seed_of_every_configuration_is_taken_and_what_is_refused_is_said(
    trained_once, tiny, tmp_path, monkeypatch
):
    second = trained_once("tiny/second", small_spec("v3", seed=1))
    vectors = ms.find_runs("zoo:retrieval-2-1-layer-quick")[0]
    parts = [(ms.report.find_report(run.spec.task), {run.label: {}}) for run in (vectors, tiny)]
    taken, refused = first_seeds([vectors, tiny, second], parts)
    assert [one.run.path for one in taken] == [tiny.path]
    assert not refused
    monkeypatch.setattr(Run, "hooked", lambda *_: foreign_model(gated_mlp=True))
    taken, refused = first_seeds([tiny], parts)
    assert not taken
    assert "W_gate" in str(refused[tiny.label])


@pytest.mark.thorough
def test_the_page_stays_near_its_size_and_no_report_fails_for_it(tiny, tmp_path, monkeypatch, capsys):
    parts = analyse_all([tiny], 1)
    n_bytes = checkpoint_bytes(tiny.model())
    monkeypatch.setattr("mnemoscope.explorer.page.WEIGHT_BYTES", int(2.5 * n_bytes))
    [taken], _ = first_seeds([tiny], parts)
    assert taken.n_checkpoints == 2
    monkeypatch.setattr("mnemoscope.explorer.packing.MAX_BYTES", n_bytes // 2)
    main(["report", str(tiny.path), "--out", str(tmp_path / "report.html")])
    assert "there is no explorer: a page holds up to" in " ".join(capsys.readouterr().out.split())
    assert "explorer.html" not in (tmp_path / "report.html").read_text()


@pytest.mark.full
def test_what_the_page_cannot_use_of_a_report_is_measured(tiny):
    [(entry, results)] = analyse_all([tiny], 1)
    [(label, result)] = results.items()
    odd = {**result, "ablation": result["ablation"].sel(kind=["zero"])}
    [taken], _ = first_seeds([tiny], [(entry, {label: odd})])
    assert taken.removed is None
    [taken], _ = first_seeds([tiny], [(entry, results)])
    assert taken.removed is not None


def test_seeds_whose_training_logged_less_stand_beside_others():
    """As in the zoo: a later version logs losses by skill too."""
    early = xr.Dataset({"test_loss": ("step", [1.0])}, coords={"step": [0]}, attrs={"preset": "v3"})
    late = early.assign(test_loss_recall=("step", [2.0]))
    found = _logged_by_all([{"metrics": early, "ablation": 1}, {"metrics": late, "ablation": 2}])
    assert [list(result["metrics"].data_vars) for result in found] == [["test_loss"]] * 2
    assert found[1]["metrics"].attrs == {"preset": "v3"}
    assert found[1]["ablation"] == 2
