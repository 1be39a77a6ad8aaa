"""Features as parts of the graph: against hooks on neurons, against the MLP as one part, and by two ways of running."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import xarray as xr
from einops import einsum

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.interventions import edge_estimates, feature_parts, gradients
from mnemoscope.interventions.graph import model_edges, reader_inputs, writers
from tests.dictionaries import N_FEATURES, neurons_as_features, random_dictionary
from tests.support import foreign_model, random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH, CORRUPTED = (TASK.monitor(6, split="test", generator=seeded(seed)) for seed in (0, 1))
LAST = torch.zeros_like(BATCH.scored)
LAST[:, -1] = True
EVEN = replace(BATCH, weights=None, scored=LAST)
PAIRS = PromptPairs(clean=EVEN, corrupted=replace(CORRUPTED, weights=None, scored=LAST), name="random")
NORMS = ("LN", "none")
ESTIMATES = {"EAP": ms.analyses.attribute_edges, "EAP-IG": ms.analyses.integrate_edges}


@cache
def plain(norm: str):
    return random_model(n_layers=2, normalization=norm, dtype="float64", d_mlp=10)


@cache
def with_neurons(norm: str):
    """A model with the neurons of both of its MLPs as features."""
    return ms.with_dictionaries(plain(norm), [neurons_as_features(plain(norm), layer) for layer in (0, 1)])


def with_random(model, **changes):
    return ms.with_dictionaries(model, [random_dictionary(model, layer=layer, **changes) for layer in (0, 1)])


def as_mlp(edge: str) -> str:
    """The edge of the MLPs that an edge of their parts belongs to."""
    return re.sub(r"(L\d)(F\d+| error)", r"\1 MLP", edge)


def effects(found: xr.Dataset) -> xr.DataArray:
    base = xr.where(found.direction == "noising", found.clean, found.corrupted)
    return (found.value - base).isel(metric=0)


def of_mlps(found: xr.Dataset) -> xr.DataArray:
    """The sums of effects over the parts of MLPs."""
    return effects(found).groupby(found.edge.to_series().map(as_mlp).to_xarray()).sum()


def moved(norm: str, edge: str, share: float):
    """The metric of clean prompts where an edge carries a share of what differs, and its slope; by hooks alone."""
    model, share_of = plain(norm), torch.tensor(share, dtype=torch.float64, requires_grad=True)
    caches = [model.run_with_cache(batch.inputs)[1] for batch in (PAIRS.corrupted, PAIRS.clean)]
    writer, reader = edge.split(" → ")
    output = [written(model, cache, writer) for cache in caches]
    added, clean = share_of * (output[0] - output[1]), caches[1]
    if reader == "logits":
        hook = (f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", lambda stream, hook: stream + added)
    elif found := re.fullmatch(r"L(\d)F(\d+)", reader):
        layer, neuron = map(int, found.groups())
        block = model.blocks[layer]
        pre = block.ln2(clean[f"blocks.{layer}.hook_resid_mid"] + added) @ block.mlp.W_in + block.mlp.b_in
        hook = (f"blocks.{layer}.mlp.hook_pre", put(pre, neuron))
    else:
        layer, head = map(int, re.findall(r"\d+", reader))
        block = model.blocks[layer]
        q = block.ln1(clean[f"blocks.{layer}.hook_resid_pre"] + added) @ block.attn.W_Q[head] + block.attn.b_Q[head]
        hook = (f"blocks.{layer}.attn.hook_q", put(q, head, axis=2))
    with torch.enable_grad():
        logits = model.run_with_hooks(PAIRS.clean.inputs, fwd_hooks=[hook])[:, -1]
        answer, foil = (side.targets[:, -1:] for side in (PAIRS.clean, PAIRS.corrupted))
        value = (logits.gather(1, answer) - logits.gather(1, foil))[:, 0]
        slopes = [torch.autograd.grad(each, share_of, retain_graph=True)[0].item() for each in value]
    return value.detach().numpy(), np.array(slopes)


def put(new, number, axis=-1):
    def hook(activation, hook):
        activation = activation.clone()
        index = [slice(None)] * activation.ndim
        index[axis] = number
        activation[tuple(index)] = new if axis == 2 else new[..., number]
        return activation

    return hook


def written(model, cache, writer: str):
    layer, *number = map(int, re.findall(r"\d+", writer))
    if "F" in writer:
        post = cache[f"blocks.{layer}.mlp.hook_post"][..., number[0], None]
        return post * model.blocks[layer].mlp.W_out[number[0]]
    z = cache[f"blocks.{layer}.attn.hook_z"][:, :, number[0]]
    return einsum(z, model.blocks[layer].attn.W_O[number[0]], "batch pos d_head, d_head d -> batch pos d")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "edge", ["L0H1 → L0F3", "L0H0 → L1F4", "L0F2 → L1F4", "L0F5 → L1H0 q", "L0F2 → logits", "L1F7 → logits"]
)
def test_edges_are_those_of_hooks_on_neurons(norm, edge):
    chosen = [each for each in model_edges(with_neurons(norm)) if str(each) == edge]
    exact = ms.patch_edges(with_neurons(norm), PAIRS, chosen=chosen, directions=["noising"])
    found, _ = moved(norm, edge, 1.0)
    np.testing.assert_allclose(exact.value.values.squeeze(), found, atol=1e-9)
    assert abs(effects(exact)).max() > 1e-6
    base, slopes = moved(norm, edge, 0.0)
    np.testing.assert_allclose(exact.clean[0], base, atol=1e-9)
    estimated = ms.analyses.attribute_edges(with_neurons(norm), PAIRS, chosen=chosen, directions=["noising"])
    np.testing.assert_allclose(effects(estimated).values.squeeze(), slopes, atol=1e-9)


SUBJECTS = {
    "LN": lambda: random_model(n_layers=3, dtype="float64"),
    "none": lambda: random_model(n_layers=3, normalization="none", dtype="float64"),
    "parallel": lambda: foreign_model(parallel_attn_mlp=True, d_vocab=6, n_layers=3, dtype="float64"),
    "shared keys": lambda: foreign_model(n_heads=4, n_key_value_heads=2, d_vocab=6, dtype="float64"),
}


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("reads", ["mlp_in", "mlp_out", "resid_mid"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_attributions_of_the_parts_add_up_to_those_of_the_mlp(name, reads, estimate):
    if name == "parallel" and reads == "resid_mid":
        return
    model = SUBJECTS[name]()
    split = with_random(model, reads=reads, activation="topk", k=3)
    whole = effects(ESTIMATES[estimate](model, PAIRS))
    parts = of_mlps(ESTIMATES[estimate](split, PAIRS))
    xr.testing.assert_allclose(parts.sel(edge=whole.edge.values).transpose(*whole.dims), whole.drop_vars(
        ["writer", "reader", "through"]), atol=1e-10)  # fmt: skip
    assert parts.sizes == whole.sizes


def test_a_skip_connection_is_written_by_the_error():
    model = plain("LN")
    skip = torch.randn(model.cfg.d_model, model.cfg.d_model, generator=seeded(3)).to(model.W_E)
    with_skip, without = (with_random(model, reads="mlp_in", skip=each) for each in (skip, None))
    one, other = (ms.patch_edges(each, PAIRS) for each in (with_skip, without))
    xr.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("changes", [{"activation": "topk", "k": 3}, {"activation": "relu"}, {
    "activation": "jumprelu", "threshold": torch.full((N_FEATURES,), 0.5, dtype=torch.float64)}])  # fmt: skip
@pytest.mark.parametrize("reads", ["mlp_in", "mlp_out"])
def test_circuits_of_all_parts_are_those_of_mlps_and_one_edge_out_is_its_patch(changes, reads):
    model = plain("LN")
    split = with_random(model, reads=reads, **changes)
    ours, theirs = (ms.analyses.Setting(model=each, pairs=PAIRS, refuse=False) for each in (split, model))
    masks = np.random.default_rng(0).random((5, len(theirs.edges))) < 0.6
    numbers = {str(edge): number for number, edge in enumerate(theirs.edges)}
    together = masks[:, [numbers[as_mlp(str(edge))] for edge in ours.edges]]
    for replacement in ("patch", "mean", "zero"):
        one, other = (each.changed(replacement=replacement) for each in (ours, theirs))
        np.testing.assert_allclose(one.values(together), other.values(masks), atol=1e-9)
    some = np.random.default_rng(1).choice(len(ours.edges), 60, replace=False)
    out = ours.values(~np.eye(len(ours.edges), dtype=bool)[some])
    patched = ms.patch_edges(split, PAIRS, chosen=[ours.edges[n] for n in some], directions=["noising"])
    np.testing.assert_allclose(patched.value[0, 0], out, atol=1e-9)


def test_positions_divide_an_attribution():
    split = with_random(plain("LN"), reads="mlp_in")
    every = ms.analyses.attribute_edges(split, PAIRS)
    into = effects(every).where(every.writer.str.startswith("L0F") & every.reader.str.startswith("L1F"), drop=True)
    name = str(abs(into).max(["direction", "prompt"]).idxmax().item())
    edge = next(each for each in model_edges(split) if str(each) == name)
    chosen = [edge, *(edge.at(pos) for pos in range(BATCH.inputs.shape[1]))]
    found = effects(ms.analyses.attribute_edges(split, PAIRS, chosen=chosen)).transpose("edge", ...).values
    np.testing.assert_allclose(found[0], found[1:].sum(0), atol=1e-12)
    assert abs(found[0]).max() > 1e-6


def test_features_come_after_the_heads_of_their_layer_in_the_place_of_the_mlp():
    model = random_model(n_layers=2)
    split = ms.with_dictionaries(model, [random_dictionary(model, layer=0)])
    names = [str(ms.Edge(writer=site)).split(" → ")[0] for site in writers(split)]
    own = [*(f"L0F{number}" for number in range(N_FEATURES)), "L0 error"]
    assert names == ["input", "L0H0", "L0H1", *own, "L1H0", "L1H1", "L1 MLP"]
    assert [part for part, through in reader_inputs(split) if through is None][: len(own)] == writers(split)[3:-3]
    found = [str(edge) for edge in model_edges(split)]
    assert len(found) == len(set(found)) == 6 + 3 * len(own) + 6 * (3 + len(own)) + (5 + len(own)) + (6 + len(own))
    assert not any(edge.startswith("L0F") and edge.split(" → ")[1] in own for edge in found)
    assert feature_parts._count_edges(split) == len(model_edges(split, embeddings="apart"))


def test_gradients_through_hooks_are_those_of_the_engine(monkeypatch):
    split = with_random(plain("LN"), reads="mlp_in", activation="topk", k=4)
    ours = ms.analyses.attribute_edges(split, PAIRS)
    for module in (gradients, edge_estimates):
        monkeypatch.setattr(module, "transformer_without_hooks", lambda *_: None)
    xr.testing.assert_allclose(ms.analyses.attribute_edges(split, PAIRS), ours, atol=1e-10)


def test_features_that_do_not_fit_at_once_come_in_parts(monkeypatch):
    split = with_random(plain("LN"), reads="mlp_in")
    ours = ms.analyses.attribute_edges(split, PAIRS)
    monkeypatch.setattr(feature_parts, "AT_ONCE", 5)
    xr.testing.assert_allclose(ms.analyses.attribute_edges(split, PAIRS), ours, atol=1e-12)


def test_what_has_no_place_in_the_graph_is_refused(monkeypatch):
    model = plain("LN")
    split, left_out = with_neurons("LN"), ms.with_dictionaries(model, [random_dictionary(model)], error=False)
    shared = with_random(SUBJECTS["shared keys"](), reads="mlp_in")
    circuit = ms.analyses.Setting(model=shared, pairs=PAIRS, refuse=False)
    edge = ms.Edge(writer=ms.Site(kind="feature", layer=0, neuron=1))
    for call, words in (
        (lambda: model_edges(with_random(model, kind="resid_post")), "take a transcoder of the MLP"),
        (lambda: model_edges(with_random(model, reads="attn_out")), "take a transcoder of the MLP"),
        (lambda: model_edges(left_out), "error=True"),
        (lambda: ms.patch_edges(split, PAIRS, freeze=["attention"]), "parts are frozen"),
        (lambda: ms.patch_edges(split, PAIRS, method="hooks"), "hooks are needed here"),
        (lambda: ms.run_with(split, EVEN, [ms.Zero(site=edge)]), "acts through hooks"),
        (lambda: circuit.ends, "share keys"),
        (lambda: ms.patch_edges(model, PAIRS, chosen=[edge]), "no edge L0F1 → logits"),
        (lambda: ms.Edge(writer=ms.Site(kind="feature", layer=0)), "one feature"),
        (lambda: ms.Edge(writer=ms.Site(kind="feature", layer=0, neuron=(1, 2))), "one feature"),
    ):
        with pytest.raises(InputError, match=words):
            call()
    kept = split.hook_dict["blocks.0.hook_feature"].register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="without hooks"):
        ms.analyses.attribute_edges(split, PAIRS)
    kept.remove()
    monkeypatch.setattr(feature_parts, "MOST_EDGES", 100)
    with pytest.raises(InputError, match="edges with all features"):
        model_edges(split)
    assert ms.analyses.attribute_edges(split, PAIRS, chosen=[edge]).edge.values.tolist() == ["L0F1 → logits"]
