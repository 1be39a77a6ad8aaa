"""`mnemoscope reproduce` on a system that is about draws and trains no runs."""

import csv
import dataclasses
import json
from unittest import mock

import pytest

from mnemoscope.claims.claim import CLAIMS, Claim
from mnemoscope.cli import main
from mnemoscope.core.presets import SYSTEMS, System
from mnemoscope.report.tables import Table
from mnemoscope.report.task_report import DRAW_REPORTS, DrawReport

NAME = "tosses-of-a-coin"


def toss(draw: int) -> dict[str, float]:
    return {"effect": 1.0, "number": float(draw)}


def tables(results):
    return [
        Table(name="sums", title="sums", header=("claim", "sum"), rows=[["Y1", f"{int(results['Y1'].number.sum())}"]])
    ]


def page(page, results):
    page.text(f"{results['Y1'].sizes['draw']} tosses")


CLAIM = Claim(
    id="Y1", statement="Coins show heads.", source="made up", quantifier="most", margin=0.5, replicate="draw",
    measure=toss, develops=False, system=NAME,
)  # fmt: skip


@pytest.fixture(autouse=True)
def system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for registry in (SYSTEMS, CLAIMS, DRAW_REPORTS):
        registry.names()  # the installed ones are there before
    with mock.patch.dict(SYSTEMS._items), mock.patch.dict(CLAIMS._items), mock.patch.dict(DRAW_REPORTS._items):
        SYSTEMS.add(NAME, System(summary="coins", quick=(), full=()))
        CLAIMS.add("Y1", CLAIM)
        yield


def test_it_ends_with_verdicts_tables_and_a_page(tmp_path, capsys):
    DRAW_REPORTS.add(NAME, DrawReport(title="Coins", tables=tables, page=page))
    main(["reproduce", NAME, "--jobs", "1", "--out", "out"])
    (verdict,) = json.loads((tmp_path / "out/verdicts/verdicts.json").read_text())
    assert (verdict["id"], verdict["outcome"]) == ("Y1", "SUPPORTED")
    assert list(csv.reader((tmp_path / "out/tables/sums.csv").open())) == [["claim", "sum"], ["Y1", "120"]]
    assert "16 tosses" in (tmp_path / "out/draws.html").read_text()
    assert "sums" in capsys.readouterr().out


def test_a_system_without_a_report_has_verdicts(tmp_path):
    main(["reproduce", NAME, "--jobs", "1", "--out", "out"])
    assert (tmp_path / "out/verdicts/verdicts.json").exists()
    assert not (tmp_path / "out/draws.html").exists()


@pytest.mark.parametrize("option", [("--full",), ("--seeds", "0")])
def test_options_of_training_are_refused(option, capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", NAME, *option])
    assert end.value.code == 2
    assert "trains no runs" in capsys.readouterr().err


def test_claims_about_draws_alone_need_no_models(tmp_path):
    main(["claims", "run", "Y1", "--jobs", "1", "--out", "out"])
    (verdict,) = json.loads((tmp_path / "out/verdicts.json").read_text())
    assert (verdict["outcome"], verdict["n"]) == ("SUPPORTED", 16)


def with_a_factor(draw: int, near: float = 0.1) -> dict[str, float]:
    return {"effect": 1.0 - near}


def test_sensitivity_tables_are_made_where_they_are_asked_for(tmp_path, capsys):
    CLAIMS._items["Y1"] = dataclasses.replace(CLAIM, measure=with_a_factor, factors={"near": (0.9,)})
    made = []
    for words in ([], ["--sensitivity"]):
        main(["reproduce", NAME, "--jobs", "1", "--out", "out", *words])
        made.append(len(json.loads((tmp_path / "out/verdicts/verdicts.json").read_text())[0]["sensitivity"]))
        assert ("--sensitivity adds" in capsys.readouterr().out) == (not words)
    assert made[0] == 0 < made[1]
