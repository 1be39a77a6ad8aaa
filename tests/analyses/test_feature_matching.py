import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from tests.support import random_model

N = 24


def batch(n: int = 60, **fields) -> ms.Batch:
    tokens = torch.randint(6, (n, 9), generator=generator(0, "tokens"))
    return ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool), **fields)


def random_dictionary(seed: int, *, n: int = N, **changes) -> ms.Dictionary:
    """Directions and biases drawn at random."""
    draws = generator(seed, "dictionary")
    parts = {
        "w_enc": torch.randn(n, 8, generator=draws, dtype=torch.float32),
        "b_enc": 1 + torch.rand(n, generator=draws, dtype=torch.float32),
        "w_dec": torch.randn(n, 8, generator=draws, dtype=torch.float32),
        "b_dec": torch.zeros(8),
    }
    place = {"name": f"random {seed}", "layer": 0, "reads": "mlp_in", "writes": "mlp_out"}
    return ms.Dictionary(**{**place, **parts, **changes})


def disguised(one: ms.Dictionary) -> tuple[ms.Dictionary, torch.Tensor]:
    """The same features in another order and on other scales."""
    order = torch.randperm(one.n_features, generator=generator(0, "order"))
    scale = 0.1 + torch.rand(one.n_features, 1, generator=generator(0, "scale"), dtype=torch.float32)
    parts = {"w_enc": one.w_enc[order] * scale, "b_enc": one.b_enc[order] * scale[:, 0]}
    return random_dictionary(0, **parts, w_dec=one.w_dec[order] / scale, name="disguised"), order


def test_a_permuted_and_rescaled_copy_agrees():
    model, one = random_model(mlp=True), random_dictionary(0)
    copy, order = disguised(one)
    found = ms.analyses.dictionary_agreement((model, one), (model, copy), batch(), threshold=0.999)
    assert found.share.values.tolist() == [1, 1]
    assert found.similarity.item() == pytest.approx(1, abs=1e-6)
    assert order[torch.from_numpy(found.partner.values)].tolist() == list(range(N))
    assert found.shuffled_share.max() < 0.5
    assert found.shuffled_similarity.max() < 0.9


def test_independent_features_agree_as_shuffled_ones():
    """A token is a pair of independent symbols; one dictionary reads the first, the other reads the second."""
    model, draws = random_model(mlp=True, attention=False, positions=False), generator(1, "symbols")
    codes = torch.randn(2, 3, 4, generator=draws, dtype=torch.float32)
    with torch.no_grad():
        model.embed.W_E.copy_(torch.stack([torch.cat([codes[0, t % 2], codes[1, t // 2]]) for t in range(6)]))
    stream = {"reads": "resid_pre", "writes": "resid_pre"}
    first, second = random_dictionary(1), random_dictionary(2)
    first, second = (
        random_dictionary(seed, w_enc=one.w_enc * mask, **stream)
        for seed, one, mask in (
            (1, first, torch.tensor([1.0] * 4 + [0] * 4)),
            (2, second, torch.tensor([0.0] * 4 + [1] * 4)),
        )
    )
    tokens = torch.randint(6, (300, 9), generator=draws)
    b = ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))
    found = ms.analyses.dictionary_agreement((model, first), (model, second), b, n_draws=40)
    low, high = found.shuffled_similarity.min().item(), found.shuffled_similarity.max().item()
    assert low <= found.similarity.item() <= high
    assert found.share.max() == found.shuffled_share.max() == 0
    same = ms.analyses.dictionary_agreement((model, first), (model, first), b)
    assert same.share.values.tolist() == [1, 1]


def test_features_that_know_their_position_agree_when_shuffled():
    model = random_model(mlp=True, attention=False)
    with torch.no_grad():
        model.embed.W_E.zero_()
    one = random_dictionary(0)
    found = ms.analyses.dictionary_agreement((model, one), (model, one), batch())
    assert found.share.min() == found.shuffled_share.min() == 1


def test_dead_features_are_stated_and_have_no_partner():
    model, one = random_model(mlp=True), random_dictionary(0)
    bias = one.b_enc.clone()
    bias[:6], bias[6] = -1e4, 1e4  # the last one is always active: it does vary
    dying = random_dictionary(0, b_enc=bias)
    found = ms.analyses.dictionary_agreement((model, dying), (model, one), batch())
    assert found.dead.values.tolist() == [6 / N, 0]
    assert found.partner.values[:6].tolist() == [-1] * 6
    assert found.correlation.isnull().sum() == 6
    assert found.share.sel(side="other") <= 18 / N
    dead = random_dictionary(0, b_enc=torch.full((N,), -1e4))
    none = ms.analyses.dictionary_agreement((model, dead), (model, one), batch())
    assert none.share.isnull().values.tolist() == [True, False]
    assert none.share.sel(side="other") == 0
    assert none.similarity.isnull()


def test_sizes_may_differ():
    model, one = random_model(mlp=True), random_dictionary(0)
    part = random_dictionary(0, w_enc=one.w_enc[:6], b_enc=one.b_enc[:6], w_dec=one.w_dec[:6])
    found = ms.analyses.dictionary_agreement((model, one), (model, part), batch(), threshold=0.999)
    assert found.share.values == pytest.approx([0.25, 1])
    assert found.partner.values[:6].tolist() == list(range(6))
    assert (found.partner.values[6:] == -1).all()
    assert found.n_features.values.tolist() == [24, 6]


def test_models_may_differ():
    """The same weights in another basis of the stream: features read in it agree."""
    model, turned = random_model(mlp=True, attention=False, positions=False), random_model(
        mlp=True, attention=False, positions=False
    )  # fmt: skip
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator(0, "basis"), dtype=torch.float32)).Q
    with torch.no_grad():
        turned.embed.W_E.copy_(model.embed.W_E @ rotation)
    stream = {"reads": "resid_pre", "writes": "resid_pre"}
    one, other = (
        random_dictionary(0, **stream),
        random_dictionary(0, **stream, w_enc=random_dictionary(0).w_enc @ rotation),
    )
    found = ms.analyses.dictionary_agreement((model, one), (turned, other), batch(), threshold=0.999)
    assert found.share.values.tolist() == [1, 1]
    wrong = ms.analyses.dictionary_agreement((model, one), (turned, one), batch(), threshold=0.999)
    assert wrong.share.max() < 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threshold": 1.5}, "threshold must be from -1 to 1; got 1.5"),
        ({"n_draws": 5}, "n_draws must be at least 20; got 5"),
        ({"batch": batch(1)}, "two sequences of one length"),
        ({"batch": batch(lengths=torch.full((60,), 5))}, "of one length"),
        ({"other": (random_model(mlp=False), random_dictionary(0))}, "no MLP"),
        ({"other": (random_model(mlp=True), random_dictionary(0, n=5000))}, "from 1 to 4096; got 5000"),
    ],
)
def test_what_cannot_be_matched_is_refused(changes, words):
    side = (random_model(mlp=True), random_dictionary(0))
    arguments = {"one": side, "other": side, "batch": batch(), **changes}
    with pytest.raises(InputError, match=words):
        ms.analyses.dictionary_agreement(**arguments)


def test_units_of_any_kind_are_matched_as_features_are():
    """With what a dictionary's features do given as numbers, the rest is the same."""
    model, sides, b = random_model(mlp=True), [random_dictionary(seed) for seed in (0, 1)], batch()
    ours = ms.analyses.dictionary_agreement((model, sides[0]), (model, sides[1]), b, threshold=0.3)
    _, cache = model.run_with_cache(b.inputs)
    encoded = [side.encode(cache["blocks.0.ln2.hook_normalized"]) for side in sides]
    found = ms.analyses.match_activations(*encoded, threshold=0.3)
    for name in ("share", "shuffled_share", "similarity", "dead"):
        assert found[name].values == pytest.approx(ours[name].values, abs=1e-5)
    assert found.partner.values.tolist() == ours.partner.values.tolist()


def test_activations_of_other_sequences_are_refused():
    one = torch.zeros(5, 2, 3)
    for other in (torch.zeros(4, 2, 3), torch.zeros(5, 1, 3)):
        with pytest.raises(InputError, match="on the same sequences"):
            ms.analyses.match_activations(one, other)
