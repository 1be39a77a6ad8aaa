"""The likeliest tokens after every position of one sequence."""

import math

import pytest

from mnemoscope.analyses.predictions import predict
from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import Predictor, random_model, seeded

LOOKUP = PermutationLookup(repeat_ratio=0.0).for_seed(0)
COUNTS = ((97, 97, 1), (97, 98, 3), (98, 97, 4), (98, 99, 4), (99, 97, 2))
TEXTS = InContextBigrams(length=8, n_triggers=1, counts=COUNTS)


def test_guesses_are_those_of_the_predictor():
    batch = LOOKUP.parse("1 3 2 4 3 5 4 1 5 2")
    result = predict(Predictor(LOOKUP, "bayes"), LOOKUP, batch, reference="bayes")
    assert result.token.values.tolist() == batch.inputs[0].tolist()
    assert result.following.values.tolist() == batch.targets[0].tolist()
    last = result.isel(pos=-1)
    assert last.guess.values[0] == last.ideal_guess.values[0] == 2
    assert float(last.p_guess[0]) == pytest.approx(1, abs=1e-6)
    assert float(last.kl) == pytest.approx(0, abs=1e-6)
    assert float(result.p_following[0]) == pytest.approx(1 / 5)
    undefined = result.isel(pos=1)  # a y predicts no x
    assert undefined.ideal_guess.values.tolist() == [-1, -1, -1]
    assert math.isnan(float(undefined.kl))


def test_what_follows_the_last_token_is_not_known_and_yet_predicted():
    batch, model = TEXTS.parse("abab"), random_model(d_vocab=3)
    result = predict(model, TEXTS, batch, reference="global_bigram", everywhere=True, n=2)
    assert result.following.values.tolist() == [1, 0, 1, -1]
    assert math.isnan(float(result.p_following[-1]))
    assert float(result.ideal_p_following[0]) == pytest.approx(3 / 4)
    assert result.ideal_p_guess.values[3].tolist() == [0.5, 0.5]
    blind = predict(model, TEXTS, batch, reference="global_bigram", n=2)
    assert math.isnan(float(blind.kl[-1]))
    assert "kl" not in predict(model, TEXTS, batch)


def test_wrong_input_is_refused():
    model = random_model()
    with pytest.raises(InputError, match="one sequence at a time; got 2"):
        predict(model, LOOKUP, LOOKUP.sample(2, split="test", generator=seeded()))
    with pytest.raises(InputError, match="number of guesses must be from 1 to 6; got 7"):
        predict(model, LOOKUP, LOOKUP.parse("1 2"), n=7)
    with pytest.raises(InputError, match="reference must be one of"):
        predict(model, LOOKUP, LOOKUP.parse("1 2"), reference="oracle")
