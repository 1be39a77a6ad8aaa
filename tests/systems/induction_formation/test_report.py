"""The page on runs, sequences as typed, and the figure of courses."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from mnemoscope import InputError, preset
from mnemoscope.cli import main
from mnemoscope.systems.induction_formation.constructed import induction
from mnemoscope.systems.induction_formation.presets import CONDITIONS
from mnemoscope.systems.induction_formation.report import course_figure, known_of, parse
from mnemoscope.systems.induction_formation.tasks import FewShot
from tests.support import ends_with

TASK = FewShot(n_classes=6, n_labels=3)
COPY = "formation-copy"
assert COPY in CONDITIONS
SMALL = {
    "task.n_classes": 6,
    "task.n_labels": 3,
    "model.d_model": 16,
    "recipe.n_steps": 20,
    "recipe.batch_size": 16,
    "recipe.metrics_every": 10,
    "recipe.checkpoint_steps": (),
}


def test_a_sequence_and_what_is_known_of_it():
    task = TASK.for_seed(0)
    batch = parse(task, "x1 y2, x3 y1, x3")
    assert batch.symbols == [["x1", "y2", "x3", "y1", "x3"]]
    assert known_of(task, batch)[:4] == [""] * 4
    assert re.fullmatch(r"as label2, (trains|held out)", known_of(task, batch)[4])
    assert known_of(TASK, batch)[4] == "as label2"


@pytest.mark.parametrize(
    "text", ["x1 y2 x3 y1", "x1 y2 x3 y1 x2", "x1 y2 x1 y1 x1", "x1 y1 x3 y1 x3", "x1 x2 x3 y1 x3", "x1 y2 x3 y1 z"]
)
def test_other_sequences_are_refused(text):
    with pytest.raises(InputError):
        parse(TASK, text)


def test_a_band_reaches_from_the_lowest_seed_to_the_highest():
    losses = [[1.6, 0.7, 0.5], [1.6, 0.6, 0.1], [1.6, 0.65, 0.2]]
    values = xr.DataArray(losses, coords={"seed": [0, 1, 2], "step": [0, 10, 20]})
    band, line = course_figure({"a": values}).data
    assert np.allclose(line.y, [0.65, 0.2])
    assert np.allclose(band.y, [0.7, 0.5, 0.1, 0.6])
    assert list(band.x) == [10, 20, 20, 10], "a logarithmic axis has no step 0"


@pytest.fixture
def runs(tmp_path, monkeypatch, trained_once):
    """Two seeds with perfect copy, which end with induction by hand."""
    for seed in (0, 1):
        spec = replace(preset(COPY, "quick", seed, changes=SMALL), preset=COPY)
        trained = trained_once(f"formation/seed-{seed}", spec)
        ends_with(induction(spec.task), trained, tmp_path / f"runs/seed-{seed}")
    monkeypatch.chdir(tmp_path)
    return "runs"


@pytest.mark.full
def test_the_page_has_the_course_heads_and_progress(runs):
    main(["evaluate", "--checkpoints", runs])
    main(["report", runs])
    text = " ".join(re.sub(r"<[^>]+>", " ", Path("report.html").read_text(encoding="utf-8")).split())
    assert "What an induction head needs" in text
    assert "The course under each condition" in text
    assert "Heads alone and together" in text
    assert "Progress of copy, routing and match" in text
    assert "formation-copy-quick 1.0 [1.0, 1.0] 1.00 [1.00, 1.00]" in text
