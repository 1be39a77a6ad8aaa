import numpy as np
import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.analyses.predictions import conflict
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, random_model, small_spec

V1 = small_spec("v1").task


def values(result, *names) -> list[list[float]]:
    return [result[name].values.tolist() for name in names]


@pytest.mark.parametrize(("predictor", "recalls"), [("recall", 1), ("bayes", 1), ("elimination", 0)])
def test_the_exact_predictors_disagree_on_every_sequence(predictor, recalls):
    result = conflict(Predictor(V1, predictor), V1)
    assert values(result, "p_recalled", "chose_recalled") == [[recalls] * 4] * 2
    assert values(result, "p_unused", "chose_unused") == [[1 - recalls] * 4] * 2
    np.testing.assert_allclose(result.p_other, 0, atol=1e-12)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_uniform_model_by_hand(split):
    result = conflict(Predictor(V1), V1, split=split)
    np.testing.assert_allclose(values(result, "p_recalled", "p_unused", "p_other"), [[0.2] * 4, [0.2] * 4, [0.6] * 4])
    assert result.attrs == {"split": split, "n": {"train": 96, "test": 24}[split] * 120 * 4, "sequences": "enumerated"}
    assert result.source_slot.values.tolist() == [1, 2, 3, 4]


def test_the_hand_set_elimination_only_never_recalls(planted):
    result = conflict(planted, V1)
    unused = 1 / (1 + 4 * np.exp(-10))
    np.testing.assert_allclose(result.p_unused, unused, rtol=1e-5)
    np.testing.assert_allclose(result.p_recalled, unused * np.exp(-10), rtol=1e-4)
    assert values(result, "chose_recalled", "chose_unused") == [[0] * 4, [1] * 4]


def test_slots_are_told_apart():
    """A model whose answer is the recalled value only if slot 2 is repeated."""
    task = V1

    class Slot2(Predictor):
        def __call__(self, tokens):
            recall, elimination = (Predictor(task, name)(tokens) for name in ("recall", "elimination"))
            return recall.where((tokens[:, 2] == tokens[:, -1])[:, None, None], elimination)

    assert conflict(Slot2(task), task).chose_recalled.values.tolist() == [0, 1, 0, 0]


def test_a_model_trained_without_repeats_answers_the_unused_value(learned):
    result = conflict(learned.model(), learned.spec.task)
    assert (result.p_unused > 0.9).all()
    np.testing.assert_allclose(result.p_recalled + result.p_unused + result.p_other, 1)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="the model has 5 tokens and the task 6"):
        conflict(random_model(d_vocab=5), V1)
    with pytest.raises(InputError, match="n_values <= 6"):
        conflict(random_model(d_vocab=8, n_ctx=13), PermutationLookup(n_values=7, split_seed=0))
