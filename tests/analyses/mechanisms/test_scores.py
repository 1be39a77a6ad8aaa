import numpy as np
import pytest
import torch

from mnemoscope.analyses.mechanisms.scores import SCORES, head_scores, repeated_tokens
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import induction
from tests.support import foreign_model, global_generators_untouched, random_model


def test_the_heads_of_the_induction_circuit_score_one():
    model = induction(12, 12)
    score = head_scores(model, repeated_tokens(model)).score
    assert score.sel(score_name="previous token", layer=0, head=0).item() == pytest.approx(1)
    assert score.sel(score_name="induction", layer=1, head=0).item() == pytest.approx(1)
    assert score.sel(score_name="induction", layer=0, head=0).item() < 1e-6
    assert score.sel(score_name="duplicate token", head=0).max().item() < 1e-6


def test_an_idle_head_scores_what_even_attention_does():
    model = induction(12, 12)
    result = head_scores(model, repeated_tokens(model)).sel(head=1)
    np.testing.assert_allclose(result.score, result.even.expand_dims(layer=2).T, rtol=1e-5)
    assert result.even.sel(score_name="self").item() == pytest.approx(sum(1 / n for n in range(2, 13)) / 11)


def test_untrained_heads_score_about_what_even_attention_does():
    model = foreign_model(n_ctx=40)
    for block in model.blocks:
        block.attn.W_Q.data *= 0.1
    result = head_scores(model, repeated_tokens(model))
    assert float(abs(result.score - result.even).max()) < 0.1


def test_a_score_without_such_keys_is_missing():
    model = random_model(d_vocab=20)
    batch = repeated_tokens(model)
    half = type(batch)(inputs=batch.inputs[:, :4], targets=batch.targets[:, :4], scored=batch.scored[:, :4])
    result = head_scores(model, half)
    assert result.score.sel(score_name=["duplicate token", "induction"]).isnull().all()
    assert result.score.sel(score_name="previous token").notnull().all()
    assert result.score_name.values.tolist() == list(SCORES)


def test_repeated_tokens_repeat_and_nothing_else_does():
    model = foreign_model()
    with global_generators_untouched():
        batch = repeated_tokens(model, n=5, length=6, first_token=7)
    first, one, again = batch.inputs[:, :1], batch.inputs[:, 1:7], batch.inputs[:, 7:]
    assert (first == 7).all()
    assert torch.equal(one, again)
    assert (one.sort(1)[0].diff(dim=1) > 0).all()
    assert not (one == 7).any()
    places = torch.arange(13).expand(5, -1)[batch.scored].view(5, -1)
    assert places.tolist() == [list(range(7, 12))] * 5
    assert torch.equal(batch.targets[batch.scored].view(5, -1), again[:, 1:])


def test_length_and_tokens_are_what_the_model_has():
    assert repeated_tokens(foreign_model()).inputs.shape == (64, 20)
    assert set(repeated_tokens(foreign_model(), tokens=range(3, 8)).inputs.unique().tolist()) == set(range(3, 8))
    with pytest.raises(InputError, match="length must be from 2 to 10"):
        repeated_tokens(foreign_model(), length=11)
    with pytest.raises(InputError, match="tokens must be from 0 to 49"):
        repeated_tokens(foreign_model(), tokens=[50, 1])
