import pickle

import pytest
import torch

from mnemoscope.analyses.evaluation import evaluate
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.constructed.stand_ins import UNIFORM, Predictor, predict_exactly
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

TASK = PermutationLookup(n_values=4, repeat_ratio=0.3).for_seed(0)


@pytest.mark.parametrize("reference", TASK.references)
def test_it_says_what_the_reference_says(reference):
    batch = TASK.enumerate(split="train")
    said = Predictor(TASK, reference)(batch.inputs).softmax(-1)[:, ::2]
    torch.testing.assert_close(said, TASK.reference(batch, reference)[:, ::2])


def test_it_does_not_see_the_last_answer():
    model, batch = Predictor(TASK, "bayes_train"), TASK.enumerate(split="train")
    said = model(batch.inputs)
    for n in (1, 3, 5):
        torch.testing.assert_close(model(batch.inputs[:, :n]), said[:, :n])


def test_undefined_is_uniform_over_tokens():
    """At slot 4 of an unseen mapping no training mapping is left: nothing is said, of any token."""
    batch = TASK.enumerate(split="test")
    undefined = TASK.reference(batch, "bayes_train")[:, -1].isnan().all(-1)
    assert undefined.any()
    said = Predictor(TASK, "bayes_train")(batch.inputs)[undefined, -1]
    torch.testing.assert_close(said.softmax(-1), torch.full_like(said, 1 / TASK.d_vocab))


def test_uniform_over_the_answers():
    assert Predictor(TASK).reference == UNIFORM
    said = Predictor(TASK)(torch.tensor([[1, 2, 3]])).softmax(-1)
    torch.testing.assert_close(said, torch.tensor([0, 0.25, 0.25, 0.25, 0.25]).double().expand(1, 3, 5))


def test_it_stands_in_for_a_model_and_has_no_inside():
    model = Predictor(TASK, "bayes")
    assert isinstance(model, HookedModel)
    assert float(evaluate(model, TASK, TASK.enumerate(split="test")).kl.sel(reference="bayes").max()) < 1e-12
    for run in (model.run_with_hooks, model.run_with_cache, model.hooks):
        with pytest.raises(NotImplementedError, match="bayes has no activations; take a model"):
            run(torch.tensor([[1]]))
    with pytest.raises(InputError, match="reference must be one of"):
        Predictor(TASK, "oracle")(torch.tensor([[1]]))


def test_predicting_plants_it_for_every_configuration():
    plant = pickle.loads(
        pickle.dumps(predict_exactly({name: Configuration(preset=name) for name in ("v1", "v3")}, "bayes"))
    )
    first, second = plant(0), plant(1)
    assert [subject.task.repeat_ratio for subject in first.values()] == [0.0, 0.3]
    for name, subject in first.items():
        assert subject.model == Predictor(subject.task, "bayes")
        assert subject.task.split_seed == subject.seed != second[name].seed
