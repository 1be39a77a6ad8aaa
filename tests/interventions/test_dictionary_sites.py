"""Every intervention at features and errors, against plain hooks that do the same by hand."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.clamp import Clamp
from mnemoscope.core.errors import InputError
from mnemoscope.engine.architecture import read_transformer
from mnemoscope.engine.block import OutputPlaces
from mnemoscope.engine.changes import Changes
from mnemoscope.interventions.clamping import make_part
from tests.dictionaries import N_FEATURES, random_dictionary
from tests.support import random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH, OTHER = (
    ms.Named(name=str(seed), value=TASK.monitor(7, split="test", generator=seeded(seed))) for seed in (0, 1)
)
MODEL = random_model(n_layers=3, dtype="float64")
DICTIONARY = random_dictionary(MODEL, reads="mlp_in")
SPLIT = ms.with_dictionaries(MODEL, [DICTIONARY])
WIDTH = {"feature": N_FEATURES, "error": MODEL.cfg.d_model}


def parts(batch: ms.Batch) -> dict[str, torch.Tensor]:
    """Features and error of a batch, by the formula."""
    _, cache = MODEL.run_with_cache(batch.inputs)
    stream = cache["blocks.1.hook_resid_mid"]
    centred = stream - stream.mean(-1, keepdim=True)
    read = centred / (centred.square().mean(-1, keepdim=True) + MODEL.cfg.eps).sqrt()
    feature = DICTIONARY.encode(read)
    return {"feature": feature, "error": cache["blocks.1.hook_mlp_out"] - DICTIONARY.decode(feature)}


def by_hand(changed: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits of the batch with the MLP's output put together from changed parts."""
    new = {**parts(BATCH.value), **changed}
    hook = ("blocks.1.hook_mlp_out", lambda x, hook: DICTIONARY.decode(new["feature"]) + new["error"])
    return MODEL.run_with_hooks(BATCH.value.inputs, fwd_hooks=[hook])


def direction(kind):
    return ms.Named(name="direction", value=torch.randn(WIDTH[kind], generator=seeded(2)).double())


@pytest.mark.parametrize("kind", ["feature", "error"])
@pytest.mark.parametrize("pos", [None, -1, (0, 2)])
def test_interventions_are_what_they_are_elsewhere(kind, pos):
    site, own, other = ms.Site(kind=kind, layer=1, pos=pos), parts(BATCH.value)[kind], parts(OTHER.value)[kind]
    added = direction(kind)
    for intervention, new in (
        (ms.Zero(site=site), torch.zeros_like(own)),
        (ms.Scale(site=site, factor=-0.5), -0.5 * own),
        (ms.Add(site=site, direction=added, coefficient=2.0), own + 2 * added.value),
        (ms.Patch(site=site, source=OTHER), other),
        (ms.Mean(site=site, source=OTHER), other.mean(0, keepdim=True).expand_as(own)),
    ):
        here = torch.zeros(own.shape[1], dtype=torch.bool)
        here[slice(None) if pos is None else list(pos) if isinstance(pos, tuple) else pos] = True
        wanted = by_hand({kind: torch.where(here[:, None], new, own)})
        if not (isinstance(intervention, ms.Mean) and OTHER.value.weights is not None):
            torch.testing.assert_close(ms.run_with(SPLIT, BATCH.value, [intervention]), wanted)
    drawn = ms.run_with(SPLIT, BATCH.value, [ms.Resample(site=site, source=OTHER)], seed=3)
    again = ms.run_with(SPLIT, BATCH.value, [ms.Resample(site=site, source=OTHER)], seed=3)
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, by_hand({}))


def test_a_feature_with_its_error_kept_and_without():
    off, bare = ms.Zero(site=ms.Site(kind="feature", layer=1, neuron=2)), ms.Zero(site=ms.Site(kind="error", layer=1))
    own = parts(BATCH.value)
    without = own["feature"].clone()
    without[..., 2] = 0
    nothing = torch.zeros_like(own["error"])
    for interventions, changed in (
        ([off], {"feature": without}),
        ([bare], {"error": nothing}),
        ([off, bare], {"feature": without, "error": nothing}),
    ):
        torch.testing.assert_close(ms.run_with(SPLIT, BATCH.value, interventions), by_hand(changed))


def test_an_entry_outside_the_site_keeps_its_bits():
    logits = ms.run_with(SPLIT, BATCH.value, [ms.Zero(site=ms.Site(kind="feature", layer=1, pos=-1))])
    assert torch.equal(logits[:, :-1], MODEL(BATCH.value.inputs)[:, :-1])
    assert not torch.equal(logits[:, -1], MODEL(BATCH.value.inputs)[:, -1])


def test_the_last_word_is_that_of_the_activation_itself():
    both = [ms.Zero(site=ms.Site(kind="feature", layer=1)), ms.Zero(site=ms.Site(kind="mlp_out", layer=1))]
    assert torch.equal(ms.run_with(SPLIT, BATCH.value, both), ms.run_with(MODEL, BATCH.value, both[1:]))
    seen = {}
    hooks = [
        ("blocks.1.hook_feature", lambda x, hook: x * 0),
        ("blocks.1.hook_mlp_out", lambda x, hook: seen.update(out=x)),
    ]
    SPLIT.run_with_hooks(BATCH.value.inputs, fwd_hooks=hooks)
    torch.testing.assert_close(seen["out"], parts(BATCH.value)["error"] + DICTIONARY.b_dec)


def test_functions_at_the_names_of_saelens_act_first():
    seen = {}
    hooks = [
        ("blocks.1.hook_feature", lambda x, hook: seen.update(x=x)),
        ("blocks.1.hook_mlp_out.hook_sae_acts_post", lambda x, hook: x + 1),
    ]
    SPLIT.run_with_hooks(BATCH.value.inputs, fwd_hooks=hooks)
    torch.testing.assert_close(seen["x"], parts(BATCH.value)["feature"] + 1)


@pytest.mark.parametrize("where_read", [False, True])
def test_the_engine_changes_features_too(where_read):
    weights, read = read_transformer(SPLIT), torch.tensor([3, 8])
    assert not isinstance(weights, str)
    changes = {"blocks.1.hook_feature": lambda x: x * 2, "blocks.1.hook_error": lambda x: x * 0}
    found = weights(BATCH.value.inputs, OutputPlaces(columns=read), Changes(changes, where_read=where_read))
    own = parts(BATCH.value)
    wanted = by_hand({"feature": 2 * own["feature"], "error": 0 * own["error"]})
    torch.testing.assert_close(found, wanted[:, read])


def test_training_has_no_dictionaries():
    with pytest.raises(InputError, match="none in training"):
        make_part(Clamp(place="L0 error", value="zero"), TASK)
