import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from mnemoscope.analyses.edits import draw_differing_sequences
from mnemoscope.analyses.probe_rows import split_sequences, with_latent
from mnemoscope.analyses.probes import probe, site_vectors
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.5, split_seed=0)
FIT = TASK.sample(400, split="train", generator=seeded(1))
TEST = TASK.sample(200, split="test", generator=seeded(2))
LAST = [
    Site(kind="resid_pre", layer=0, pos=-1),
    Site(kind="z", layer=0, head=0, pos=-1),
    Site(kind="z", layer=0, head=1, pos=-1),
    Site(kind="resid_mid", layer=0, pos=-1),
]
NEAR = 0.12
"""Two hundred coin flips stay within this of one half but once in a thousand times."""


def untrained(model, seed=0):
    cfg = model.cfg
    spec = ModelSpec(d_model=cfg.d_model, n_heads=cfg.n_heads, n_layers=cfg.n_layers, mlp=not cfg.attn_only)
    return build(spec, d_vocab=cfg.d_vocab, n_ctx=cfg.n_ctx, seed=seed)


@pytest.mark.parametrize("make", [dissociated, store_and_match])
@pytest.mark.parametrize("latent", ["is_repeat", "source_slot"])
def test_what_the_second_head_writes_is_read_there_and_after_it_and_nowhere_else(make, latent):
    result = probe(make(), FIT, latent, sites=LAST, test=TEST, n_shuffles=3)
    before, store, match, after = result.accuracy.sel(pos=8).values
    assert min(match, after) > (0.99 if latent == "is_repeat" else 0.97)
    assert abs(before - result.chance.values[0, 0]) < NEAR
    assert abs(store - result.chance.values[0, 0]) < NEAR
    assert (result.selectivity.sel(against="shuffled")[2:] > 0.4).all()
    assert (abs(result.selectivity.sel(against="shuffled")[:2]) < NEAR).all()
    assert (result.information[2:] > 0.9).all()
    assert (result.information[:2] < 0.1).all()
    assert (result.balanced_accuracy[2:] > 0.95).all()


def test_a_latent_is_read_from_the_position_on_where_the_sequence_tells_it():
    site = Site(kind="z", layer=0, head=1)
    result = probe(dissociated(), FIT, "is_repeat", sites=[site], test=TEST, n_shuffles=1).sel(site="L0H1")
    assert result.pos.values.tolist() == list(range(9))
    assert result.accuracy[8] == 1
    assert (abs(result.accuracy - result.chance)[:8] < NEAR).all()


def test_the_value_to_recall_is_where_the_second_layer_has_put_it():
    sites = [Site(kind="z", layer=1, head=h, pos=-1) for h in (0, 1)]
    result = probe(two_layer_recall(), with_repeats(FIT), "recalled", sites=sites, test=with_repeats(TEST))
    assert result.accuracy.values[1, 0] == 1
    assert result.accuracy.values[0, 0] < result.chance.values[0, 0] + 0.15


def with_repeats(batch):
    return batch.select(batch.latents["is_repeat"])


def previous_tokens(batch):
    before = batch.inputs.roll(1, 1)
    before[:, 0] = -1
    return with_latent(with_latent(batch, "before", before), "has before", before >= 0)


def test_the_token_before_is_read_behind_the_previous_token_head():
    """Over all positions, where there is a token before; in the residual stream only after the head has written."""
    fit, test = split_sequences(previous_tokens(induction_batch(300, n_tokens=8, n_ctx=10, generator=seeded(1))))
    sites = [Site(kind="resid_pre", layer=0), Site(kind="z", layer=0, head=0), Site(kind="resid_pre", layer=1)]
    options = {"test": test, "where": "has before", "n_shuffles": 2}
    result = probe(induction(8, 10), fit, "before", sites=sites, pooled=True, **options)
    assert result.accuracy.dims == ("site",)
    assert result.n_fit.values.tolist() == [len(fit) * 9] * 3
    assert (result.accuracy[1:] == 1).all()
    assert result.accuracy[0] < 0.3
    assert (result.selectivity.sel(against="shuffled")[1:] > 0.7).all()
    by_pos = probe(induction(8, 10), fit, "before", sites=sites[1:2], **options)
    assert by_pos.pos.values.tolist() == list(range(1, 10))
    assert (by_pos.accuracy == 1).all()


def test_tokens_are_read_from_untrained_models_so_that_only_the_difference_counts():
    model = dissociated()
    controls = {f"untrained {seed}": untrained(model, seed) for seed in (5, 6)}
    arguments = {"sites": LAST[3:], "test": TEST, "controls": controls, "n_shuffles": 2}
    token = probe(model, FIT, "token", **arguments)
    assert (token.accuracy == 1).all()
    assert (token.control_score > 0.95).all()
    assert (token.selectivity.sel(against="shuffled") > 0.6).all()
    assert (token.selectivity.sel(against=list(controls)) < 0.05).all()
    repeat = probe(model, FIT, "is_repeat", **arguments)
    assert (repeat.selectivity.sel(against=list(controls)) > 0.2).all()


def test_a_coin_has_no_selectivity():
    fit, test = (with_latent(b, "coin", torch.rand(len(b), generator=seeded(3)) < 0.5) for b in (FIT, TEST))
    result = probe(dissociated(), fit, "coin", sites=LAST, test=test, controls={"untrained": untrained(dissociated())})
    assert (abs(result.selectivity) < 0.15).all()
    assert (result.information < 0.05).all()
    assert (abs(result.shuffled.mean("draw") - 0.5) < NEAR).all()


def test_rounding_errors_of_an_idle_head_are_no_signal():
    """Head 1 of layer 1 writes nothing, and head 0 of layer 0 leaks 1e-13 of other positions."""
    batch = induction_batch(300, n_tokens=8, n_ctx=10, generator=seeded(1))
    sites = [Site(kind="z", layer=1, head=1, pos=7), Site(kind="z", layer=0, head=0, pos=7)]
    result = probe(induction(8, 10), with_latent(batch, "first", batch.inputs[:, 0]), "first", sites=sites)
    assert (result.accuracy < 0.3).all()


def test_it_is_scikit_learn_by_hand():
    model, site = random_model(), Site(kind="resid_mid", layer=0)
    fit, test = FIT.select(slice(0, 120)), TEST.select(slice(0, 60))
    result = probe(model, fit, "y[2]", sites=[site], test=test, penalty=0.5, n_shuffles=1)
    x, x_test = (
        model.run_with_cache(b.inputs)[1]["blocks.0.hook_resid_mid"][:, 8].double().numpy() for b in (fit, test)
    )
    y, y_test = (b.latents["y"][:, 1].numpy() for b in (fit, test))
    scaler = StandardScaler().fit(x)
    by_hand = LogisticRegression(C=2.0, max_iter=2000).fit(scaler.transform(x), y)
    guess = by_hand.predict(scaler.transform(x_test))
    at = result.sel(pos=8).squeeze("site")
    assert at.accuracy == (guess == y_test).mean()
    assert at.balanced_accuracy == pytest.approx(np.mean([(guess == c)[y_test == c].mean() for c in range(1, 6)]))
    share = np.bincount(y, minlength=6)[1:] / len(y)
    assert at.chance == (y_test == share.argmax() + 1).mean()
    p = by_hand.predict_proba(scaler.transform(x_test))[np.arange(60), y_test - 1]
    assert at.information == pytest.approx(np.log2(p / share[y_test - 1]).mean())
    assert (at.n_fit, at.n_test) == (120, 60)


def test_numbers_are_read_by_ridge_regression():
    """A copied coordinate is a linear function of the stream; a number that has nothing to do with it is not."""
    model, site = random_model(), Site(kind="resid_pre", layer=0, pos=-1)
    fit, test = FIT, TEST
    streams = [model.run_with_cache(b.inputs)[1]["blocks.0.hook_resid_pre"][:, 8] for b in (fit, test)]
    fit, test = (with_latent(b, "third", x[:, 2]) for b, x in zip((fit, test), streams, strict=True))
    fit, test = (with_latent(b, "noise", torch.randn(len(b), generator=seeded(4))) for b in (fit, test))
    result = probe(model, fit, "third", sites=[site], test=test, n_shuffles=2)
    assert result.r2 > 0.999
    assert (result.shuffled < 0.1).all()
    assert "accuracy" not in result
    scaler = StandardScaler().fit(streams[0].double())
    ridge = Ridge(alpha=1.0).fit(scaler.transform(streams[0].double()), fit.latents["third"].double())
    expected = ridge.score(scaler.transform(streams[1].double()), test.latents["third"].double())
    assert result.r2.item() == pytest.approx(expected)
    assert probe(model, fit, "noise", sites=[site], test=test, n_shuffles=2).r2 < 0.1


def test_where_a_latent_takes_one_value_there_is_no_score_and_the_rest_stays():
    only_last = torch.zeros_like(FIT.inputs)
    only_last[:, -1] = FIT.latents["is_repeat"]
    fit, test = with_latent(FIT, "flag", only_last), with_latent(TEST, "flag", torch.zeros_like(TEST.inputs))
    test.known["flag"][:, -1] = TEST.latents["is_repeat"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = probe(dissociated(), fit, "flag", sites=[Site(kind="z", layer=0, head=1)], test=test, n_shuffles=2)
    assert result.accuracy[0, :8].isnull().all()
    assert result.shuffled[:, 0, :8].isnull().all()
    assert result.accuracy[0, 8] == 1


def test_positions_of_a_site_may_be_named_after_a_latent():
    """The earlier occurrence of the last x: there the token is known, one probe for all positions."""
    site = Site(kind="resid_pre", layer=0, pos="source_pos")
    result = probe(dissociated(), FIT, "token", sites=[site], test=TEST, pooled=True, n_shuffles=1)
    assert result.n_fit == FIT.latents["is_repeat"].sum()
    assert result.accuracy == 1
    assert result.site.values.tolist() == ["L0 resid_pre pos source_pos"]


def test_one_batch_is_split_by_sequence():
    once = TASK.sample(60, split="all", generator=seeded())
    batch = once.select(torch.arange(60).repeat(3))
    first, second = split_sequences(batch, seed=1)
    assert len(first) + len(second) == 180
    rows = [set(map(tuple, side.inputs.tolist())) for side in (first, second)]
    assert not rows[0] & rows[1]
    assert abs(len(rows[0]) - len(rows[1])) <= 1
    result = probe(dissociated(), FIT, "is_repeat", sites=LAST[2:3], n_shuffles=1)
    assert result.accuracy == 1
    assert result.n_fit + result.n_test == len(FIT)


def test_partners_differ_in_the_latent():
    batch = TASK.sample(50, split="all", generator=seeded())
    slots = batch.latents["source_slot"]
    assert (slots[draw_differing_sequences(batch, "source_slot", seed=2)] != slots).all()
    assert (
        draw_differing_sequences(batch, "source_slot", seed=2).tolist()
        != draw_differing_sequences(batch, "source_slot", seed=3).tolist()
    )


def test_the_seed_decides_and_the_global_generators_stay():
    arguments = {"sites": LAST[2:], "n_shuffles": 2}
    with global_generators_untouched():
        first = probe(random_model(), FIT, "is_repeat", **arguments, seed=1)
    assert first.identical(probe(random_model(), FIT, "is_repeat", **arguments, seed=1))
    assert not first.equals(probe(random_model(), FIT, "is_repeat", **arguments, seed=2))


def test_results_can_be_saved(tmp_path):
    for controls in ({}, {"untrained": random_model(seed=1)}):
        result = probe(random_model(), FIT, "is_repeat", sites=LAST, controls=controls, n_shuffles=1)
        assert reads_back(result, tmp_path / f"{len(controls)}.nc")
        assert result.attrs["latent"] == "is_repeat"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"latent": "colour"}, "a latent must be one of"),
        ({"latent": "mapping"}, r"name one column, mapping\[1\] to mapping\[5\]"),
        ({"latent": "mapping[6]"}, r"mapping\[1\] to mapping\[5\]"),
        ({"latent": "x[0]"}, r"x\[1\] to x\[5\]"),
        ({"where": "source_slot"}, "where must name a Boolean latent"),
        ({"sites": []}, "sites must name at least one"),
        ({"sites": [LAST[0]] * 2}, "each once"),
        ({"sites": [Site(kind="z", layer=0)]}, "name a head"),
        ({"sites": [Site(kind="pattern", layer=0, head=0)]}, "one number per query and key"),
        ({"sites": [Site(kind="z", layer=1, head=0)]}, "the layer of site"),
        ({"sites": [Site(kind="resid_pre", layer=0, pos=9)]}, "a position of site"),
        ({"test": FIT}, "share"),
        (
            {"test": PermutationLookup(n_values=4, split_seed=0).sample(9, split="all", generator=seeded())},
            "one length",
        ),
        ({"penalty": 0.0}, "penalty must be"),
        ({"n_shuffles": 0}, "n_shuffles must be"),
        ({"fit": FIT.select(slice(0, 1)), "test": None}, "two different sequences"),
        ({"controls": {"small": random_model(d_vocab=3)}}, "the model has 3 tokens"),
    ],
)
def test_what_cannot_be_probed_is_refused(changes, words):
    arguments = {"fit": FIT, "latent": "is_repeat", "sites": LAST[:1], "test": TEST, **changes}
    with pytest.raises(InputError, match=words):
        probe(random_model(), **arguments)


def test_nan_is_refused_unless_it_is_left_out():
    value = torch.where(FIT.latents["is_repeat"], 1.0 * FIT.latents["source_slot"], math.nan)
    fit = with_latent(FIT, "slot", value)
    with pytest.raises(InputError, match="leave these rows out with where"):
        probe(dissociated(), fit, "slot", sites=LAST[2:3])
    assert probe(dissociated(), fit, "slot", sites=LAST[2:3], where="is_repeat").r2 > 0.8
    broken = random_model()
    with torch.no_grad():
        broken.blocks[0].attn.W_O[0, 0, 0] = math.nan
    with pytest.raises(InputError, match="holds NaN"):
        probe(broken, FIT, "is_repeat", sites=LAST[:1])


def test_latents_of_ones_own_have_a_new_name_and_a_value_for_every_sequence():
    with pytest.raises(InputError, match="take another name"):
        with_latent(FIT, "x", FIT.inputs)
    with pytest.raises(InputError, match="a value for each of 400"):
        with_latent(FIT, "mine", TEST.inputs)
    with pytest.raises(InputError, match="one value in all sequences"):
        draw_differing_sequences(FIT.select(FIT.latents["is_repeat"]), "is_repeat")
    with pytest.raises(InputError, match="one value per sequence"):
        draw_differing_sequences(FIT, "token")


def test_the_vectors_are_those_of_the_cache():
    model = foreign_model()
    _, cache = model.run_with_cache(TEST.inputs)
    written = torch.einsum("bpd,dm->bpm", cache["z", 1][:, :, 1], model.blocks[1].attn.W_O[1])
    expected = {
        Site(kind="embed"): cache["embed"],
        Site(kind="pos_embed"): cache["pos_embed"].expand(200, -1, -1),
        Site(kind="q", layer=0, head=1): cache["q", 0][:, :, 1],
        Site(kind="result", layer=1, head=1): written,
        Site(kind="attn_out", layer=1): cache["attn_out", 1],
        Site(kind="post", layer=0, neuron=(0, 3)): cache["post", 0][..., [0, 3]],
        Site(kind="pre", layer=0, neuron=2): cache["pre", 0][..., [2]],
        Site(kind="resid_post", layer=1): cache["resid_post", 1],
    }
    for found, vector in zip(site_vectors(model, TEST, list(expected)), expected.values(), strict=True):
        torch.testing.assert_close(found, vector.double(), atol=1e-5, rtol=1e-5)
