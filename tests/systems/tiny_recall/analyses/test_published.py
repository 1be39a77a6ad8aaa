from dataclasses import replace

import numpy as np
import pytest

from mnemoscope.analyses.evaluation import evaluate_splits
from mnemoscope.analyses.stacking import over_seeds
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict
from mnemoscope.systems.tiny_recall.analyses.published import FIGURES, compare
from tests.support import Predictor


@pytest.fixture(scope="module")
def bayes(tiny):
    """Results of the perfect predictor, as if it were two seeds."""
    task = tiny.spec.task
    model = Predictor(task, "bayes")
    sampled = evaluate_splits(model, task, n_samples=500)
    second = replace(tiny, spec=replace(tiny.spec, seed=tiny.spec.seed + 1))
    return over_seeds([tiny, second], [{"sampled": sampled, "conflict": conflict(model, task)}] * 2)


def test_the_perfect_predictor_beside_the_published_figures(bayes):
    table = compare("v3", bayes["sampled"], bayes["conflict"])
    assert table.sizes["row"] == sum(figure.preset == "v3" for figure in FIGURES) == 21
    by_quantity = table.groupby("quantity")
    assert float(by_quantity["mean_abs_error"]["max"].max()) < 1e-12
    assert float(by_quantity["conflict_p_recalled"]["mean"].item()) == pytest.approx(1)
    np.testing.assert_allclose(table.difference, table["mean"] - table.published)
    np.testing.assert_allclose(table["min"], table["max"])  # both "seeds" are the same


def test_a_configuration_without_published_figures_has_no_rows(bayes):
    assert compare("d64h1", bayes["sampled"], bayes["conflict"]).sizes["row"] == 0
