"""Models with dictionaries: the same to the bit until something changes, and what then follows, by hand."""

from dataclasses import replace
from functools import partial

import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.engine.architecture import read_transformer
from mnemoscope.engine.budget import n_rows_at_once
from mnemoscope.interventions.run import run_at
from mnemoscope.models.dictionaries import run_with_dictionaries, with_dictionaries
from tests.bridge import as_bridge
from tests.dictionaries import N_FEATURES, neurons_as_features, random_dictionary
from tests.support import foreign_model, random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(6, split="test", generator=seeded())
KINDS = ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")
MODELS = {
    "LN": partial(random_model, n_layers=3, dtype="float64"),
    "none": partial(random_model, n_layers=3, normalization="none", dtype="float64"),
    "single": partial(random_model, n_layers=3),
    "RMS": partial(foreign_model, dtype="float64", normalization_type="RMS", d_vocab=6, n_layers=3),
    "parallel": partial(foreign_model, dtype="float64", parallel_attn_mlp=True, d_vocab=6, n_layers=3),
    "gated": partial(foreign_model, dtype="float64", gated_mlp=True, act_fn="silu", d_vocab=6, n_layers=3),
}
OFF = ms.Zero(site=ms.Site(kind="feature", layer=1, neuron=3))


def close(model):
    """Rounding: in single precision the last bits of an error term are lost."""
    return {"atol": 1e-4, "rtol": 1e-4} if model.W_E.dtype == torch.float32 else {"atol": 1e-9, "rtol": 1e-9}


def norm(model, stream):
    """The stream normalised without gain and bias, by hand."""
    kind = str(model.cfg.normalization_type)
    if kind == "None":
        return stream
    centred = stream - stream.mean(-1, keepdim=True) if kind.startswith("LN") else stream
    return centred / (centred.square().mean(-1, keepdim=True) + model.cfg.eps).sqrt()


def what_is_read(model, dictionary, cache):
    if dictionary.reads != "mlp_in":
        return cache[f"blocks.1.hook_{dictionary.reads}"]
    return norm(model, cache[f"blocks.1.hook_resid_{'pre' if model.cfg.parallel_attn_mlp else 'mid'}"])


def dictionaries(model):
    for kind in KINDS:
        if not (kind == "resid_mid" and model.cfg.parallel_attn_mlp):
            yield random_dictionary(model, kind)
    draws = torch.randn(model.cfg.d_model, model.cfg.d_model, generator=seeded(3)).to(model.W_E)
    yield random_dictionary(model, "mlp_out", reads="mlp_in", skip=draws)
    yield random_dictionary(model, "mlp_out", reads="mlp_in", activation="topk", k=3)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_changes_until_something_is_changed(name):
    model = MODELS[name]()
    for dictionary in dictionaries(model):
        split = with_dictionaries(model, [dictionary])
        assert torch.equal(split(BATCH.inputs), model(BATCH.inputs))
        logits, cache = split.run_with_cache(BATCH.inputs)
        assert torch.equal(logits, model(BATCH.inputs))
        read = what_is_read(model, dictionary, cache)
        torch.testing.assert_close(cache["blocks.1.hook_feature"], dictionary.encode(read), **close(model))
        whole = dictionary.decode(cache["blocks.1.hook_feature"], read) + cache["blocks.1.hook_error"]
        torch.testing.assert_close(whole, cache[f"blocks.1.hook_{dictionary.writes}"], **close(model))
        sae = f"blocks.1.hook_{dictionary.writes}.hook_sae"
        assert torch.equal(cache[f"{sae}_acts_post"], cache["blocks.1.hook_feature"])
        assert torch.equal(cache[f"{sae}_error"], cache["blocks.1.hook_error"])
        same = [ms.Scale(site=ms.Site(kind=kind, layer=1), factor=1.0) for kind in ("feature", "error")]
        assert torch.equal(ms.run_with(split, BATCH, same), model(BATCH.inputs))


@pytest.mark.parametrize("name", MODELS)
def test_a_feature_that_is_switched_off_is_its_direction_taken_away(name):
    model = MODELS[name]()
    for dictionary in dictionaries(model):
        split = with_dictionaries(model, [dictionary])
        _, cache = model.run_with_cache(BATCH.inputs)
        active = dictionary.encode(what_is_read(model, dictionary, cache))[..., 3, None]

        def without(x, hook, active=active, dictionary=dictionary):
            return x - active * dictionary.w_dec[3]

        point = f"blocks.1.hook_{dictionary.writes}"
        wanted = model.run_with_hooks(BATCH.inputs, fwd_hooks=[(point, without)])
        torch.testing.assert_close(ms.run_with(split, BATCH, [OFF]), wanted, **close(model))
        at = run_at(split, BATCH, [OFF], BATCH.scored)
        torch.testing.assert_close(at, wanted[BATCH.scored], **close(model))


@pytest.mark.parametrize("name", MODELS)
def test_without_its_error_a_dictionary_reconstructs(name):
    model = MODELS[name]()
    for dictionary in dictionaries(model):
        zero = ms.Zero(site=ms.Site(kind="error", layer=1))
        whole, bare = (with_dictionaries(model, [dictionary], error=error) for error in (True, False))
        _, cache = model.run_with_cache(BATCH.inputs)
        rebuilt = dictionary.reconstruct(what_is_read(model, dictionary, cache))
        hooks = [(f"blocks.1.hook_{dictionary.writes}", lambda x, hook, new=rebuilt: new)]
        wanted = model.run_with_hooks(BATCH.inputs, fwd_hooks=hooks)
        torch.testing.assert_close(ms.run_with(whole, BATCH, [zero]), wanted, **close(model))
        torch.testing.assert_close(bare(BATCH.inputs), wanted, **close(model))
        both = ms.run_with(whole, BATCH, [OFF, zero])
        torch.testing.assert_close(ms.run_with(bare, BATCH, [OFF]), both, **close(model))
        assert not isinstance(read_transformer(whole), str)
        assert read_transformer(bare) == "its dictionaries leave out their errors"


def test_several_layers_and_the_original_is_left_alone():
    model = random_model(n_layers=3)
    before, points = model(BATCH.inputs), list(model.hook_dict)
    both = with_dictionaries(
        with_dictionaries(model, [random_dictionary(model, "resid_post", layer=0)]),
        [random_dictionary(model, "mlp_out", layer=2, reads="mlp_in")],
    )
    sites = [ms.Zero(site=ms.Site(kind="feature", layer=layer, neuron=(0, 1))) for layer in (0, 2)]
    one = with_dictionaries(model, [*both.dictionaries])
    assert torch.equal(ms.run_with(both, BATCH, sites), ms.run_with(one, BATCH, sites))
    assert not torch.equal(ms.run_with(both, BATCH, sites), before)
    assert torch.equal(model(BATCH.inputs), before)
    assert list(model.hook_dict) == points
    assert all(a is b for a, b in zip(model.parameters(), both.parameters(), strict=True))
    assert {name for name, _ in both.named_parameters()} == {name for name, _ in model.named_parameters()}


def test_passes_leave_room_for_the_features():
    model = random_model(n_layers=2)
    many = torch.zeros(5000, 8)
    wide = random_dictionary(model, w_enc=many, b_enc=many[:, 0], w_dec=many)
    split = with_dictionaries(model, [wide])
    few, more = (n_rows_at_once(subject, 9, max_bytes=10_000_000) for subject in (split, model))
    assert few == 10_000_000 // (4 * 9 * (4 * 5000 + 6 * 8 + 6 * 4 * 8)) < more


def test_gradients_at_the_parts_are_those_of_what_they_add():
    model = random_model(n_layers=2).double()
    dictionary = random_dictionary(model, "mlp_out", reads="mlp_in")
    split = with_dictionaries(model, [dictionary])
    found = {}

    def keep(x, hook):
        x.retain_grad()
        found[hook.name] = x

    names = ("feature", "error", "mlp_out")
    with torch.enable_grad():
        split.run_with_hooks(BATCH.inputs, fwd_hooks=[(f"blocks.1.hook_{name}", keep) for name in names])[
            ..., 0
        ].sum().backward()
    feature, error, out = (found[f"blocks.1.hook_{name}"].grad for name in names)
    torch.testing.assert_close(error, out)
    torch.testing.assert_close(feature, out @ dictionary.w_dec.T)


def test_what_does_not_fit_is_refused():
    model = random_model(n_layers=2)
    one = random_dictionary(model)
    hooked = random_model(n_layers=2)
    hooked.add_hook("blocks.0.hook_resid_pre", lambda x, hook: x)
    for subject, given, words in (
        (model, [one, one], "different layers"),
        (model, [replace(one, layer=2)], "from 0 to 1; got 2"),
        (model, [random_dictionary(random_model(d_model=4))], "width 8, the model's; random has 4"),
        (model, [random_dictionary(model, "resid_post", reads="resid_pre")], "must write it too"),
        (random_model(mlp=False, n_layers=2), [one], "no MLP"),
        (foreign_model(parallel_attn_mlp=True), [random_dictionary(model, "resid_mid")], "beside the attention"),
        (as_bridge(model), [one], "must be a HookedTransformer"),
        (hooked, [one], "must carry no hooks"),
    ):
        with pytest.raises(InputError, match=words):
            with_dictionaries(subject, given)
    split = with_dictionaries(model, [one])
    with pytest.raises(InputError, match="error must be True"):
        with_dictionaries(split, [replace(one, layer=0)], error=False)
    with pytest.raises(InputError, match="fold it first"):
        ms.models.building.fold_normalisation(split)


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (ms.Site(kind="feature", layer=0), "those that have one are: L1"),
        (ms.Site(kind="error", layer=0), "those that have one are: L1"),
        (ms.Site(kind="feature", layer=1, neuron=N_FEATURES), f"from 0 to {N_FEATURES - 1}"),
    ],
)
def test_sites_that_a_model_lacks_are_refused(site, words):
    split = with_dictionaries(model := random_model(n_layers=2), [random_dictionary(model)])
    with pytest.raises(InputError, match=words):
        ms.run_with(split, BATCH, [ms.Zero(site=site)])
    with pytest.raises(InputError, match="give the model one"):
        ms.run_with(model, BATCH, [ms.Zero(site=site)])


def test_runs_find_dictionaries_of_their_own(tmp_path):
    (run,) = ms.find_runs("zoo:v3-quick/seed-16")
    own = neurons_as_features(run.hooked(), layer=0)
    ms.save_dictionary(own, tmp_path / "own.safetensors")
    looked_at = run_with_dictionaries(run, [tmp_path / "own.safetensors"])
    assert looked_at.label == f"{run.label}-dictionaries"
    assert looked_at.hooked().dictionaries == (own,)
    with pytest.raises(InputError, match="either"):
        run_with_dictionaries(looked_at, [tmp_path / "own.safetensors"])
