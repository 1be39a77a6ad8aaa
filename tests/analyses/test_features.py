"""Analyses of features. Those of a dictionary of an MLP's own neurons must be what the analyses say of the neurons."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from tests.dictionaries import N_FEATURES, neurons_as_features, random_dictionary
from tests.support import foreign_model, random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH, CORRUPTED = (TASK.monitor(8, split="test", generator=seeded(seed)) for seed in (0, 1))
EVEN = replace(BATCH, weights=None)
SKILLS = {"read": BATCH.scored}
PAIRS = PromptPairs(clean=BATCH, corrupted=replace(CORRUPTED, scored=BATCH.scored), name="random")
NORMS = ("LN", "none")


@cache
def both(norm: str):
    """A model, and the same with the neurons of its second MLP as features."""
    model = random_model(n_layers=2, normalization=norm, dtype="float64", d_mlp=10)
    return model, ms.with_dictionaries(model, [neurons_as_features(model)])


def assert_same(ours: xr.Dataset, theirs: xr.Dataset) -> None:
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name].dims == theirs[name].dims, name
        if theirs[name].dtype.kind == "f":
            np.testing.assert_allclose(ours[name], theirs[name], atol=1e-9, rtol=1e-9, err_msg=str(name))
        else:
            assert (ours[name] == theirs[name]).all(), name


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("analysis", [ms.analyses.neuron_keys, ms.analyses.neuron_values])
def test_keys_and_values(norm, analysis):
    model, split = both(norm)
    assert_same(analysis(split, layer=1, units="features"), analysis(model, layer=1))


def test_keys_that_read_the_stream_itself_see_its_mean():
    """A reader behind LayerNorm does not, so that the mean was left out for all."""
    model = random_model(n_layers=2, dtype="float64")
    dictionary = random_dictionary(model, "mlp_out", reads="resid_mid")
    found = ms.analyses.neuron_keys(ms.with_dictionaries(model, [dictionary]), layer=1, units="features")
    np.testing.assert_allclose(found.key_token, (dictionary.w_enc @ model.W_E.T).detach(), atol=1e-9)
    ov = model.W_V[1, 0] @ model.W_O[1, 0] @ dictionary.w_enc.T
    seen = (model.W_E - model.W_E.mean(-1, keepdim=True)) * model.blocks[1].ln1.w
    np.testing.assert_allclose(found.key_head_token.sel(head=0).T, (seen @ ov).detach(), atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_all_that_is_read_of_neurons(norm):
    model, split = both(norm)
    given = {"skills": SKILLS, "reference": CORRUPTED, "inputs": BATCH, "layer": 1}
    features = ms.analyses.read_neurons(split, BATCH, units="features", **given)
    neurons = ms.analyses.read_neurons(model, BATCH, **given)
    assert features.keys() == neurons.keys()
    for name in neurons:
        if name != "roles":  # neurons that carry nothing are named by rounding
            assert_same(features[name], neurons[name])


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_removals_and_ablations(kind):
    model, split = both("LN")
    given = {"skills": SKILLS, "reference": CORRUPTED, "kinds": [kind]}
    groups = {"few": [0, 3], "none": []}
    features = ms.analyses.group_effects(split, BATCH, groups, layer=1, units="features", **given)
    assert_same(features, ms.analyses.group_effects(model, BATCH, groups, layer=1, **given))
    found = {
        kind: ms.ablate(
            subject, BATCH, targets={f"{n}": (ms.Site(kind=kind, layer=1, neuron=n),) for n in (0, 3)}, **given
        )
        for subject, kind in ((split, "feature"), (model, "post"))
    }
    assert_same(found["feature"], found["post"])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("over", [("layer", "neuron"), ("layer", "pos", "neuron"), ("layer", "pos"), ("layer",)])
def test_patches_and_their_estimates(norm, over):
    model, split = both(norm)
    for measure in (ms.patch, ms.analyses.estimate):
        features = measure(split, PAIRS, kind="feature", over=over)
        neurons = measure(model, PAIRS, kind="post", over=over, only={"layer": [1]})
        assert_same(features, neurons)
        assert features.attrs["method"] == neurons.attrs["method"]


def test_attribution():
    model, split = both("LN")
    assert_same(
        ms.logit_attribution(split, BATCH, by="feature"), ms.logit_attribution(model, BATCH, by="neuron", layers=[1])
    )


def test_probes():
    model, split = both("LN")
    batch = TASK.monitor(40, split="test", generator=seeded(4))
    found = [
        ms.probe(subject, batch, "token", sites=[ms.Site(kind=kind, layer=1, pos=-1)], n_shuffles=1)
        for subject, kind in ((split, "feature"), (model, "post"))
    ]
    np.testing.assert_allclose(found[0].accuracy, found[1].accuracy)


SUBJECTS = {
    "LN": lambda: random_model(n_layers=3, dtype="float64"),
    "none": lambda: random_model(n_layers=3, normalization="none", dtype="float64"),
    "attention only": lambda: random_model(n_layers=3, mlp=False, dtype="float64"),
    "parallel": lambda: foreign_model(parallel_attn_mlp=True, d_vocab=6, n_layers=3, dtype="float64"),
}


@pytest.mark.parametrize("kind", ["resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_sweeps_continued_from_the_stream_are_those_through_hooks(name, kind):
    model = SUBJECTS[name]()
    if (kind == "resid_mid" and name == "parallel") or (kind in ("mlp_out", "resid_mid") and model.cfg.attn_only):
        return
    sparse = {"activation": "topk", "k": 2}
    split = ms.with_dictionaries(
        model, [random_dictionary(model, kind, **sparse), random_dictionary(model, kind, layer=2, **sparse)]
    )
    for swept, over in (
        ("feature", ("layer", "neuron")),
        ("feature", ("layer", "pos", "neuron")),
        ("feature", ("layer", "pos")),
        ("error", ("layer", "pos")),
    ):
        ways = [ms.patch(split, PAIRS, kind=swept, over=over, method=method) for method in ("stream", "hooks")]
        assert (ways[0].layer == [1, 2]).all()
        assert_same(*ways)
        assert float(abs(ways[0].value - ways[0].value.mean("layer")).max()) > 1e-3


@pytest.mark.parametrize("kind", ["resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"])
def test_removals_go_wherever_a_dictionary_writes(kind):
    model = random_model(n_layers=2, dtype="float64")
    for layer in (0, 1):
        split = ms.with_dictionaries(model, [random_dictionary(model, kind, layer=layer)])
        given = {"skills": SKILLS, "reference": CORRUPTED, "kinds": ["zero", "mean"]}
        found = ms.analyses.neuron_effects(split, EVEN, layer=layer, units="features", **given)
        targets = {f"{n}": (ms.Site(kind="feature", layer=layer, neuron=n),) for n in range(N_FEATURES)}
        wanted = ms.ablate(split, EVEN, targets=targets, **given)
        for name in ("accuracy", "log_prob"):
            np.testing.assert_allclose(found[name], wanted[name], atol=1e-9)


def test_attribution_leaves_the_rest_to_the_rest():
    model = random_model(n_layers=3, dtype="float64")
    split = ms.with_dictionaries(model, [random_dictionary(model, layer=layer) for layer in (0, 2)])
    found = ms.logit_attribution(split, BATCH, by="feature")
    total = found.attribution.sum(["layer", "neuron"]) + found.rest
    np.testing.assert_allclose(total, found.logit_difference, atol=1e-9)
    assert found.layer.values.tolist() == [0, 2]


def test_what_features_do_not_have_is_refused():
    model = random_model(n_layers=2)
    split = ms.with_dictionaries(model, [random_dictionary(model, "resid_post")])
    unequal = ms.with_dictionaries(split, [neurons_as_features(model, 0)])
    for call, words in (
        (lambda: ms.analyses.neuron_keys(split, layer=1, units="features"), "reads resid_post"),
        (lambda: ms.analyses.neuron_values(split, layer=0, units="features"), "those that have one are: L1"),
        (lambda: ms.analyses.neuron_values(split, layer=1, units="heads"), "units must be one of"),
        (lambda: ms.patch(model, PAIRS, kind="feature", over=("layer", "neuron")), "give the model one"),
        (lambda: ms.patch(split, PAIRS, kind="feature", over=("layer",), only={"layer": [0]}), "only\\['layer'\\]"),
        (lambda: ms.patch(unequal, PAIRS, kind="feature", over=("layer", "neuron")), "as many features"),
        (lambda: ms.logit_attribution(unequal, BATCH, by="feature"), "as many features"),
        (lambda: ms.logit_attribution(model, BATCH, by="feature"), "give the model one"),
    ):
        with pytest.raises(InputError, match=words):
            call()
