"""The page on runs of k-fold composition, of a model that is known to compose, and the curriculum that it may have."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mnemoscope.cli import main
from mnemoscope.core import TaskChange
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.systems.k_hop.constructed import doubling
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import ends_with

TASK = KHop(n_functions=2, hops=(1, 2))
SPEC = RunSpec(
    task=TASK,
    model=ModelSpec(d_model=16, n_heads=2, n_layers=2, mlp=False, attention_dir="bidirectional"),
    recipe=Recipe(n_steps=20, batch_size=16, metrics_every=10, checkpoint_steps=()),
    seed=0,
)


@pytest.fixture
def runs(tmp_path, monkeypatch, trained_once):
    """Two seeds that compose from their last checkpoint on."""
    for seed in (0, 1):
        task = TASK.for_seed(seed)
        trained = trained_once(f"hops/seed-{seed}", replace(SPEC, seed=seed, task=task))
        ends_with(doubling(task), trained, tmp_path / f"runs/seed-{seed}")
    monkeypatch.chdir(tmp_path)
    return "runs"


@pytest.mark.full
def test_the_page_says_which_layer_holds_the_second_half(runs, capsys):
    main(["report", runs])
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<title>k-fold composition</title>" in page
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "Which layer holds the intermediate results" in text
    assert all(f"s{function}({argument})=" in page for function in (1, 2) for argument in range(4))
    assert "hops after layer 0 after layer 1 2 1.00 [1.00, 1.00] 0.00 [0.00, 0.00]" in text


def test_a_curriculum_changes_what_is_asked(tmp_path, trained_once):
    """Until it is asked, the answer after two hops is left as it starts, worse than a guess."""
    recipe = replace(
        SPEC.recipe,
        n_steps=60,
        metrics_every=20,
        learning_rate=1e-2,
        task_changes=(TaskChange(step=0, field="asked", value=(1,)), TaskChange(step=40, field="asked", value=(2,))),
    )
    metrics = trained_once("hops-curriculum", replace(SPEC, recipe=recipe, task=TASK.for_seed(0))).metrics()
    one, two = (metrics[f"test_loss_hops_{hops}"].values for hops in (1, 2))
    assert one[2] < 0.5 * one[0]
    assert two[2] > 0.8 * two[0]
    assert two[3] < 0.5 * two[2]
