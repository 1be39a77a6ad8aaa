"""What a model knows of a fact: predictors whose knowledge is known, and trajectories that went as prescribed."""

import math

import numpy as np
import pytest
import xarray as xr

from mnemoscope import InputError, constructed, preset
from mnemoscope.systems.factual_recall.analyses import split_loss, stages, trajectory
from mnemoscope.systems.factual_recall.tasks import FactualRecall
from tests.support import random_model, seeded

TASK = FactualRecall(n_subjects=6, n_relations=3, n_answers=4, n_noise=5, length=8, facts_seed=3)
BATCH = TASK.sample(300, split="test", generator=seeded())


def of(reference: str) -> xr.Dataset:
    return split_loss(constructed.Predictor(TASK, reference), TASK, BATCH)


@pytest.mark.parametrize(
    ("reference", "relation", "subject"),
    [("uniform", math.log(3), math.log(4)), ("relation_uniform", 0, math.log(4)), ("fact", 0, 0)],
)
def test_the_parts_of_the_loss_are_what_is_not_known(reference, relation, subject):
    found = of(reference)
    assert float(found.loss_relation) == pytest.approx(relation, abs=1e-9)
    assert float(found.loss_subject) == pytest.approx(subject, abs=1e-9)
    assert float(found.loss) == pytest.approx(relation + subject, abs=1e-9)


def test_who_answers_by_the_relation_alone_is_at_no_distance_from_it():
    assert float(of("relation").kl_relation) == pytest.approx(0, abs=1e-9)
    assert float(of("subject").kl_subject) == pytest.approx(0, abs=1e-9)
    assert float(of("uniform").kl_relation) > 1
    assert float(of("fact").accuracy) == 1
    assert np.isinf(of("fact").kl_relation), "what is never said is infinitely far from what sometimes is right"


def test_a_trajectory_sees_the_same_sequences_at_every_step():
    spec = preset("facts-linear", seed=2)
    task = spec.task
    model = random_model(d_vocab=task.d_vocab, n_ctx=task.n_ctx)
    first, again = (trajectory(model, task, seed=2) for _ in range(2))
    assert first.identical(again)
    assert not first.equals(trajectory(model, task, seed=3))


def followed(**measures) -> xr.Dataset:
    """Planted measures of one seed at the steps 0, 100, …"""
    n = len(next(iter(measures.values())))
    arrays = {name: (("seed", "step"), [values]) for name, values in measures.items()}
    return xr.Dataset(arrays, coords={"seed": [0], "step": np.arange(n) * 100})


def test_stages_are_read_off_a_planted_trajectory():
    course = followed(
        loss_relation=[1.1, 1.0, 0.2, 0.0, 0.0, 0.0],
        loss_subject=[1.4, 1.4, 1.4, 1.4, 0.3, 0.1],
        kl_relation=[1.1, 1.0, 0.09, 0.01, 0.9, 1.4],
    )
    found = stages(course, n_relations=3, n_answers=4).sel(seed=0)
    assert [float(found[name]) for name in ("relation_known", "fact_known")] == [200, 400]
    assert [float(found[name]) for name in ("hallucinates_from", "hallucinates_until")] == [200, 300]
    assert float(found.share) == pytest.approx(100 / 400)


def test_what_never_happens_is_nan_and_lasts_for_nothing():
    course = followed(loss_relation=[1.1, 1.0], loss_subject=[1.4, 1.3], kl_relation=[1.1, 1.0])
    found = stages(course, n_relations=3, n_answers=4).sel(seed=0)
    assert all(np.isnan(found[name]) for name in ("relation_known", "fact_known", "hallucinates_from"))
    assert float(found.share) == 0


def test_other_tasks_are_refused():
    with pytest.raises(InputError, match=r"reads models of factual-recall; got one of k-hop"):
        split_loss(random_model(), preset("k-hop-2").task, BATCH)
    with pytest.raises(InputError, match="trajectory of factual recall"):
        stages(followed(loss=[1.0]), n_relations=3, n_answers=4)
