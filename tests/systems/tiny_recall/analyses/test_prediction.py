import numpy as np
import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.analyses.predictions import predict
from tests.support import Predictor, small_spec

TASK = small_spec().task


def test_a_sequence_with_a_repeat_read_by_hand():
    result = predict(Predictor(TASK, "elimination"), TASK, "3 3 4 5 2 1 1 4 3")
    assert result.x.values.tolist() == [3, 4, 2, 1, 3]
    assert result.target.values.tolist() == [3, 5, 1, 4, 0]
    assert result.used.sel(slot=3).values.tolist() == [False, False, True, False, True]
    np.testing.assert_allclose(result.probability.sel(slot=3), [1 / 3, 1 / 3, 0, 1 / 3, 0])
    np.testing.assert_allclose(result.bayes.sel(slot=5), [0, 0, 1, 0, 0])
    np.testing.assert_allclose(result.probability.sel(slot=5), [0, 1, 0, 0, 0])


def test_a_short_sequence_and_a_complete_one():
    assert predict(Predictor(TASK), TASK, "2").sizes["slot"] == 1
    assert predict(Predictor(TASK), TASK, "2 5 1 4").target.values.tolist() == [5, 4]


@pytest.mark.parametrize("text", ["", "6", "0 1", "1 2 1 3", "1 2 3 2", "1 1 2 2 3 3 4 4 5 5 1", "one"])
def test_sequences_that_are_none(text):
    with pytest.raises(InputError):
        predict(Predictor(TASK), TASK, text)
