"""The page on runs of the retrieval problem, of a model whose circuit is known."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.systems.retrieval.analyses import first_layers
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.report import circuit_figure, place_name, reach_figure, trajectory
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import ends_with

SPEC = RunSpec(
    task=Retrieval(n_chains=2, n_steps=1),
    model=ModelSpec(d_model=16, n_heads=2, n_layers=2, act_fn="gelu", positions=False),
    recipe=Recipe(n_steps=20, batch_size=16, metrics_every=10, checkpoint_steps=()),
    seed=0,
)


@pytest.fixture
def runs(tmp_path, monkeypatch, trained_once):
    """Two seeds that follow the chains from their last checkpoint on."""
    model = chain_follower(1, n_chains=2, positions=True)
    for seed in (0, 1):
        ends_with(model, trained_once(f"chains/seed-{seed}", replace(SPEC, seed=seed)), tmp_path / f"runs/seed-{seed}")
    monkeypatch.chdir(tmp_path)
    return "runs"


@pytest.mark.full
def test_the_page_shows_the_circuit_of_every_seed(runs, capsys):
    main(["report", runs])
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<title>The retrieval problem</title>" in page
    for section in ("what-was-learned", "what-can-be-known-after-how-many-layers", "the-circuit-of-attention"):
        assert f'<h2 id="{section}"' in page
    for seed in (0, 1):
        assert f"Seed {seed}: who fetches what from where." in page
    assert "query A" in page
    assert "B in AB" in page
    assert "Not tracked yet" in page


@pytest.mark.full
def test_a_page_of_tracked_runs_says_when_paths_set_in(runs, capsys):
    """The chain follower stands at the last checkpoint only, so that its paths are there from step 20 on."""
    main(["evaluate", "--checkpoints", runs])
    main(["report", runs])
    page = re.sub(r"<[^>]+>", " ", Path("report.html").read_text(encoding="utf-8"))
    section = " ".join(page[page.index("Onsets of the paths") :][:600].split())
    assert "query A ← B in AB 2 2 20 [20, 20]" in section, "path, seeds, seeds in which it sets in, step"
    assert "B in AB ← A in AB 2 2 20 [20, 20]" in section
    assert "in 100% of the seeds: query A ← B in AB = B in AB ← A in AB." in section


def test_paths_are_followed_along_training(runs, capsys):
    main(["evaluate", "--checkpoints", runs])
    out = capsys.readouterr().out
    assert "0→2" in out
    model = chain_follower(1, n_chains=2, positions=True)
    found = trajectory(model, SPEC.task, seed=0)
    assert float(found["0→2"]) > 0.99
    assert float(found["loss_x1"]) < 0.01
    assert set(found.data_vars) == {
        "loss",
        "loss_x1",
        *(f"{place}→{to}" for place in range(3) for to in range(3) if place != to),
    }


def test_places_are_called_by_their_symbols():
    assert [place_name(place) for place in range(5)] == ["query A", "A in AB", "B in AB", "B in BC", "C in BC"]


def test_an_arrow_is_drawn_for_every_path_from_its_source_up_to_its_reader():
    """One chain link: the second looks at the first in layer 0, the query at the second in layer 2 of 3."""
    rise = np.full((3, 1, 3, 3), np.nan)
    rise[0, 0, 2, 1], rise[2, 0, 0, 2] = 0.1, 0.6
    coords = {"layer": [0, 1, 2], "head": [0], "place": [0, 1, 2], "to": [0, 1, 2]}
    figure = circuit_figure(xr.DataArray(rise, dims=tuple(coords), coords=coords))
    arrows = [(tuple(trace.x), tuple(trace.y)) for trace in figure.data[1:]]
    assert arrows == [((0, 1), (0, 1)), ((1, 2), (1, 2))], "places from left to right are 1, 2 and the query"
    assert list(figure.layout.yaxis.ticktext) == ["inputs", "after layer 0", "after layer 2"]
    assert list(figure.layout.xaxis.ticktext) == ["A in AB", "B in AB", "query A"]
    assert figure.data[2].line.width > figure.data[1].line.width


def test_what_is_never_known_is_left_blank():
    figure = reach_figure(first_layers(1, 2, mask="forward"))
    assert [list(row) for row in figure.data[0].text] == [["0", "0", "1", "2"], ["", "0", "0", ""], ["", "1", "0", "0"]]
