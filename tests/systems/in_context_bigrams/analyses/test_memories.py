from typing import Any

import numpy as np
import pytest
import torch

from mnemoscope.analyses import (
    Association,
    copying,
    embedding_vectors,
    ov_circuits,
    qk_circuits,
    recall_score,
    weight_matrix,
    weight_product,
)
from mnemoscope.analyses.stacking import concatenate
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import ParamSite
from mnemoscope.models.constructed import associative_memory, attention_memory, induction
from mnemoscope.systems.in_context_bigrams.analyses import (
    copied_token,
    induction_memories,
    previous_token,
    remapped_copy,
)
from tests.support import foreign_model, random_model, reads_back

UNKNOWN: Any = "W_K"
MAPPING = [3, 1, 4, 1, 5, 9, 2, 6, 5, 8]


def mapping(model, name="mapping", answers=MAPPING):
    """From the embedding of every token to the unembedding of its answer."""
    return Association(
        name=name,
        inputs=embedding_vectors(model, "W_E"),
        outputs=embedding_vectors(model, "W_U"),
        targets=torch.tensor(answers),
    )


# ---- planted memories


def test_a_head_that_stores_a_mapping_recalls_that_and_no_other():
    model = attention_memory(MAPPING)
    found = recall_score(weight_product(model, "OV", layer=0, head=0), mapping(model))
    assert found.recall == 1
    assert found.margin.values.tolist() == [20] * 10
    shifted = [(answer + 1) % 10 for answer in MAPPING]
    assert recall_score(weight_product(model, "OV", layer=0, head=0), mapping(model, answers=shifted)).recall == 0
    assert recall_score(weight_product(model, "OV", layer=0, head=1), mapping(model)).recall == 0


@pytest.mark.parametrize("d_embed", [None, 8])
def test_an_mlp_that_stores_a_mapping_recalls_it_in_each_of_its_matrices_and_in_their_product(d_embed):
    model = associative_memory(MAPPING, d_embed=d_embed)
    token, answer, neuron = (
        embedding_vectors(model, "W_E"),
        embedding_vectors(model, "W_U"),
        torch.eye(10, dtype=torch.double),
    )
    to_neuron = Association(name="token to neuron", inputs=token, outputs=neuron)
    from_neuron = Association(name="neuron to answer", inputs=neuron, outputs=answer, targets=torch.tensor(MAPPING))
    assert recall_score(weight_matrix(model, ParamSite(name="W_in", layer=0)), to_neuron).recall == 1
    assert recall_score(weight_matrix(model, ParamSite(name="W_out", layer=0)), from_neuron).recall == 1
    whole = recall_score(weight_product(model, "MLP", layer=0), mapping(model))
    assert whole.recall == 1 if d_embed is None else whole.recall > whole.permuted_high


def test_the_three_memories_of_the_planted_induction_head():
    model = induction(20, 16)
    for over in ("keys", "queries"):
        found = induction_memories(model, over=over)
        assert found.recall.values.tolist() == [1, 1, 1, 1]
        assert found.mean_margin.values == pytest.approx([30, 30, 30, 20])
    assert induction_memories(model, previous=(0, 1), induction=(1, 1)).recall.values.tolist() == [0, 0, 0, 0]


def test_idle_heads_beside_it_recall_no_more_than_permuted_targets_do():
    model = induction(20, 16, noise=0.05)
    assert induction_memories(model).recall.values.tolist() == [1, 1, 1, 1]
    found = induction_memories(model, previous=(0, 1), induction=(1, 1))
    assert (found.recall <= np.maximum(found.permuted_high, 0.2)).all()


def test_untrained_models_recall_at_chance():
    found = [
        induction_memories(random_model(d_vocab=40, n_ctx=40, n_layers=2, mlp=False, d_model=32, seed=seed), n_draws=2)
        for seed in range(20)
    ]
    mean = concatenate("seed", dict(enumerate(found))).mean("seed")
    assert (abs(mean.recall - mean.chance) < [0.03, 0.08, 0.03, 0.03]).all()


# ---- what is read


@pytest.mark.parametrize("normalization", ["none", "LN"])
def test_scores_are_those_of_the_full_circuits(normalization):
    model = random_model(n_layers=2, d_model=8, normalization=normalization)
    scores = qk_circuits(model).pos_pos.sel(layer=1, head=1)
    over_keys = scores.values[1:, :-1]  # the position that a query has before it is on the diagonal
    found = previous_token(model, head=(1, 1))
    np.testing.assert_allclose(found.score, over_keys.diagonal(), rtol=1e-9)
    assert found.recalled.values.tolist() == (over_keys.argmax(1) == np.arange(8)).tolist()
    assert found.association.values.tolist() == list(range(1, 9))
    found = previous_token(model, head=(1, 1), over="queries", n_pos=5)
    assert found.recalled.values.tolist() == (scores.values[1:5, :4].argmax(0) == np.arange(4)).tolist()
    found = previous_token(model, head=(1, 1), first=4, n_pos=4)
    assert found.association.values.tolist() == [5, 6, 7]
    assert found.recalled.values.tolist() == (scores.values[5:8, 4:7].argmax(1) == np.arange(3)).tolist()
    written = ov_circuits(model).token_logit.sel(layer=0, head=1).values
    np.testing.assert_allclose(copied_token(model, head=(0, 1)).score, written.diagonal(), rtol=1e-9)


def test_copied_tokens_are_those_whose_own_logit_is_the_largest():
    model = random_model(d_vocab=30, n_layers=2)
    own = copying(model).own.sel(along="logit", extreme="largest")
    for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert copied_token(model, head=(layer, head)).recall == own.sel(layer=layer, head=head)


def test_the_published_code_gives_the_same_numbers():
    """Bietti et al.: argmax over keys of queries against keys, W_Q the identity; over logits for the last one."""
    model = foreign_model(attn_only=True, n_heads=1, d_head=8, normalization_type=None, use_attn_scale=False)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q[0] = torch.eye(8)
    one, two = (block.attn for block in model.blocks)
    position, token, n = model.W_pos, model.W_E, torch.arange(50)
    before = position[1:] @ (position[:-1] @ one.W_K[0]).T
    early = position[1:5] @ (position[:4] @ one.W_K[0]).T
    remapped = token @ (token @ one.W_V[0] @ one.W_O[0] @ two.W_K[0]).T
    copied = token @ two.W_V[0] @ two.W_O[0] @ model.W_U
    shares = [
        (scores.argmax(-1) == n[: len(scores)]).double().mean().item() for scores in (before, early, remapped, copied)
    ]
    assert induction_memories(model).recall.values == pytest.approx(shares)


def test_a_matrix_of_one_head_with_the_other_side_taken_into_the_vectors():
    model = random_model(n_layers=2)
    site = ParamSite(name="W_K", layer=1, head=0)
    position, inside = embedding_vectors(model, "W_pos"), weight_matrix(model, ParamSite(name="W_Q", layer=1, head=0))
    inside = position[1:] @ inside
    by_hand = recall_score(weight_matrix(model, site), Association(name="W_K", inputs=position[:-1], outputs=inside))
    whole = previous_token(model, head=(1, 0), over="queries")
    assert by_hand.recalled.equals(whole.recalled.assign_coords(association=by_hand.association))
    np.testing.assert_allclose(by_hand.score / np.sqrt(4), whole.score, rtol=1e-9)


def test_tokens_can_be_chosen():
    model = random_model(d_vocab=30, n_layers=2)
    some = remapped_copy(model, tokens=[3, 7, 11])
    assert some.association.values.tolist() == [3, 7, 11]
    assert some.n_candidates == 3
    assert copied_token(model, tokens=[3, 7, 11]).n_candidates == 30
    assert copied_token(model, tokens=[7]).score.item() == pytest.approx(copied_token(model).score.values[7])


def test_results_go_along_steps_and_into_a_file(tmp_path):
    models = {step: random_model(n_layers=2, seed=step) for step in (0, 100)}
    found = concatenate("step", {step: induction_memories(model) for step, model in models.items()})
    assert found.recall.dims == ("step", "memory")
    assert found.attrs["weights"] == "LayerNorm folded; sigma and biases left out"
    assert reads_back(found, tmp_path / "found.nc")
    each = concatenate("step", {step: previous_token(model) for step, model in models.items()})
    assert each.margin.dims == ("step", "association")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: previous_token(m, head=(2, 0)), "the layer of a head must be from 0 to 1; got 2"),
        (lambda m: previous_token(m, head=(0, 2)), "the number of a head must be from 0 to 1; got 2"),
        (lambda m: previous_token(m, n_pos=2), "n_pos must be from 3 to 9; got 2"),
        (lambda m: previous_token(m, over=UNKNOWN), "over must be one of: keys, queries"),
        (lambda m: remapped_copy(m, writer=(1, 0)), "writer must be in an earlier layer than the head's, 1; got 1"),
        (lambda m: remapped_copy(m, tokens=[1]), "the number of outputs of remapped copy must be at least 2; got 1"),
        (lambda m: copied_token(m, tokens=[6]), "an entry of tokens must be from 0 to 5; got 6"),
        (lambda m: weight_matrix(m, ParamSite(name="b_Q", layer=0)), "site must be a matrix, not a bias; got L0 b_Q"),
        (lambda m: weight_matrix(m, ParamSite(name="W_Q", layer=0)), "L0 W_Q is one matrix per head; name the head"),
        (lambda m: weight_matrix(m, ParamSite(name="W_O", layer=0, head=5)), "must be from 0 to 1; got 5"),
        (lambda m: weight_product(m, "QK", layer=0), "QK is one matrix per head; name the head, from 0 to 1"),
        (lambda m: weight_product(m, "MLP", layer=0, head=0), "an MLP has no heads; leave head out, got 0"),
        (lambda m: weight_product(m, name=UNKNOWN, layer=0), "name must be one of: QK, OV, MLP"),
        (lambda m: embedding_vectors(m, UNKNOWN), "name must be one of: W_E, W_pos, W_U"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_there_is_not_is_refused(ask, message):
    with pytest.raises(InputError, match=message):
        ask(random_model(n_layers=2))


def test_models_without_what_is_asked_for_are_refused():
    rotary = foreign_model(positional_embedding_type="rotary", rotary_dim=2, d_head=4)
    for ask in (previous_token, induction_memories, lambda model: embedding_vectors(model, "W_pos")):
        with pytest.raises(InputError, match="adds no positions to the residual stream"):
            ask(rotary)
    assert remapped_copy(rotary).attrs["n"] == 50
    with pytest.raises(InputError, match="the model has no MLP"):
        weight_product(random_model(mlp=False), "MLP", layer=0)
    with pytest.raises(InputError, match="vocabularies must be the same; they have 50 and 7 tokens"):
        copied_token(foreign_model(d_vocab_out=7))
    broken = random_model(n_layers=2)
    broken.blocks[0].attn.W_K.data[0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="W_K holds NaN or infinity"):
        previous_token(broken)
