"""`reproduce` of puzzles and of modular addition, with hardly trained models: published figures, then verdicts."""

import csv
import json
from contextlib import nullcontext
from dataclasses import replace
from unittest import mock

import pytest

from mnemoscope.cli import ahead, main
from mnemoscope.cli.commands import reproduce
from mnemoscope.core.presets import PRESETS, SYSTEMS

SYSTEM_PRESETS = {
    "puzzles": (("running-sum", "sorted-list"), ("P12", "P13")),
    "modular-addition": (("addition-c1", "addition-c0"), ("C1", "C3")),
}
"""Presets that are trained, and some claims that are tried on them."""


@pytest.fixture(params=sorted(SYSTEM_PRESETS))
def system(request, tmp_path, monkeypatch):
    """A system with two of its presets, a few steps long; the zoo is left alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ahead, "zoo_measured_ahead", lambda *_, **__: nullcontext())
    monkeypatch.setattr(reproduce, "_try_zoo", lambda *_: [])
    known = SYSTEMS.get(request.param)
    presets, _ = SYSTEM_PRESETS[request.param]
    with mock.patch.dict(PRESETS._items), mock.patch.dict(SYSTEMS._items):
        for name in presets:
            found = PRESETS.get(name)
            short = replace(found.recipes["quick"], n_steps=20, warmup_steps=5, metrics_every=10)
            PRESETS._items[name] = replace(found, recipes={**found.recipes, "quick": short})
        part = replace(known.quick[0], presets=presets, seeds=(48, 49))
        SYSTEMS._items[request.param] = replace(known, quick=(part,))
        yield request.param


@pytest.mark.full
def test_it_ends_with_the_published_figures_and_verdicts(system, tmp_path, capsys):
    main(["reproduce", system, "--jobs", "1", "--no-explore", "--out", "out"])
    out = capsys.readouterr().out
    assert out.index("published") < out.index("asked of the runs just trained")
    tables = {"puzzles": ("running-sum/", "sorted-list/"), "modular-addition": ("",)}[system]
    for place in tables:
        header, *rows = csv.reader((tmp_path / f"out/tables/{place}published.csv").open())
        assert any("published" in name for name in header)
        assert any("ours" in name for name in header)
        assert rows
    assert "published" in (tmp_path / "out/report.html").read_text()
    verdicts = json.loads((tmp_path / "out/verdicts-fresh/verdicts.json").read_text())
    tried = {verdict["id"]: verdict for verdict in verdicts}
    assert set(SYSTEM_PRESETS[system][1]) <= set(tried)
    assert {verdict["outcome"] for verdict in verdicts} == {"NOT_APPLICABLE"}, "two seeds decide nothing"
    main(["reproduce", system, "--jobs", "1", "--no-explore", "--out", "out"])
    assert capsys.readouterr().out.startswith(f"{system}: all 4 models are trained; "), "runs that are there are taken"
