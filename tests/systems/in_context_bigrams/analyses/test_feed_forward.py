import math
from typing import Any

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.in_context_bigrams.analyses.feed_forward import feed_forward_bigrams
from mnemoscope.systems.in_context_bigrams.markov import bigrams
from tests.support import random_model, reads_back

COUNTS = tuple((ord(a), ord(b), 1 + (ord(a) * ord(b)) % 5) for a in "abcdef" for b in "abcdef")
TABLE = bigrams(COUNTS).transitions


def storing(table):
    """One-hot embeddings and logits, and a linear MLP that holds the logarithms of a table."""
    model: Any = random_model(d_model=6, d_mlp=6, act_fn="identity", normalization="none", n_layers=2)
    with torch.no_grad():
        for matrix in (model.embed.W_E, model.unembed.W_U, model.blocks[1].mlp.W_in):
            matrix.copy_(torch.eye(6))
        model.blocks[1].mlp.W_out.copy_(table.log())
        for bias in (model.blocks[1].mlp.b_in, model.blocks[1].mlp.b_out, model.unembed.b_U):
            bias.zero_()
    return model


def test_a_stored_table_is_recognised(tmp_path):
    model = storing(TABLE)
    found = feed_forward_bigrams(model, TABLE)
    assert found.mean_kl == pytest.approx(0, abs=1e-6)
    assert found.even_kl == pytest.approx(float((TABLE * (TABLE * 6).log()).sum(1).mean()))
    rolled = feed_forward_bigrams(model, TABLE.roll(1, 0))
    by_hand = (TABLE.roll(1, 0) * (TABLE.roll(1, 0) / TABLE).log()).sum(1)
    assert rolled.kl.values == pytest.approx(by_hand.tolist(), abs=1e-6)
    assert feed_forward_bigrams(model, TABLE, layer=0).mean_kl > 0.1
    assert reads_back(found, tmp_path / "found.nc")


def test_tokens_that_are_left_out_do_not_count():
    model = storing(TABLE)
    with torch.no_grad():
        model.blocks[1].mlp.W_out[2] = 0  # even logits
    found = feed_forward_bigrams(model, TABLE)
    assert found.mean_kl == pytest.approx(float((TABLE[2] * (TABLE[2] * 6).log()).sum()) / 6, abs=1e-6)
    rest = feed_forward_bigrams(model, TABLE, tokens=[0, 1, 3, 4, 5])
    assert rest.mean_kl == pytest.approx(0, abs=1e-6)
    assert rest.token.values.tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("normalization", ["none", "LN"])
def test_it_is_the_models_own_mlp_on_the_embedding_alone(normalization):
    """Without attention and positions the last of one layer's MLPs sees nothing else."""
    model = random_model(normalization=normalization, attention=False, positions=False)
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.arange(6)[:, None])
        written = cache["blocks.0.hook_mlp_out"]
        logits = model.unembed(model.ln_final(written) if normalization == "LN" else written)[:, 0]
    kl = (TABLE * (TABLE.log() - logits.double().log_softmax(-1))).sum(-1)
    assert feed_forward_bigrams(model, TABLE).kl.values == pytest.approx(kl.tolist(), rel=1e-5)


def test_successors_that_never_occur_cost_nothing_and_wrong_tables_are_refused():
    diagonal = torch.eye(6, dtype=torch.double)
    assert math.isfinite(feed_forward_bigrams(random_model(), diagonal).mean_kl)
    with pytest.raises(InputError, match=r"\(6, 6\); got \(5, 5\)"):
        feed_forward_bigrams(random_model(), torch.eye(5, dtype=torch.double))
    with pytest.raises(InputError, match="add up to 1"):
        feed_forward_bigrams(random_model(), 2 * diagonal)
    with pytest.raises(InputError, match="attn_only"):
        feed_forward_bigrams(random_model(mlp=False), diagonal)
