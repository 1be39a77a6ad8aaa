"""A GPT-2 of `transformers` says what the model says, or it is said why it cannot."""

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.export import as_gpt2, obstacles
from tests.support import foreign_model, random_model, seeded

DIVIDING = {"n_heads": 2, "d_head": 4, "normalization_type": "LN"}


@pytest.mark.parametrize(
    "model",
    [
        random_model(n_layers=2),
        random_model(mlp=False),
        random_model(act_fn="gelu"),
        foreign_model(**DIVIDING, d_vocab=8, d_model=8, dtype="float64"),
    ],
    ids=["two layers", "attention only", "gelu", "float64"],
)
def test_logits_are_the_same(model):
    tokens = torch.randint(model.cfg.d_vocab, (5, model.cfg.n_ctx), generator=seeded(3))
    assert model.b_U.abs().max() > 0.01
    with torch.no_grad():
        expected, found = model(tokens), as_gpt2(model)(tokens).logits
    assert torch.allclose(found, expected, atol=1e-5 if found.dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"normalization_type": None}, "its normalization is none, not LN"),
        ({"n_heads": 2, "d_head": 3}, "its heads do not divide its width"),
        ({"attention_dir": "bidirectional"}, "its attention is bidirectional"),
        ({"positional_embedding_type": "rotary", "rotary_dim": 4}, "its positions are rotary"),
        ({"d_vocab_out": 5}, "it predicts 5 of 50 tokens"),
        ({"d_vocab": 50}, "its unembedding has a bias that GPT-2 lacks"),
    ],
)
def test_what_cannot_be_held_is_named(changes, reason):
    model = foreign_model(**{**DIVIDING, **changes})
    assert any(reason in each for each in obstacles(model))
    with pytest.raises(InputError, match=f"cannot hold this model: .*{reason}"):
        as_gpt2(model)
