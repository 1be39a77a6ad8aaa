"""Attribution patching: the shape of the exact sweep, exact where the model is linear, the slope elsewhere."""

import numpy as np
import pytest
import torch

from mnemoscope.analyses.estimates import approximation, estimate
from mnemoscope.analyses.patching import effects, patch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import ACCURACY, LOG_PROB, LOGIT_DIFF
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Site
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.systems.tiny_recall.constructed import elimination_only, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.bridge import as_bridge
from tests.split_hooks import mean_logit_difference, random_pairs
from tests.support import foreign_model, global_generators_untouched, reads_back, seeded

DOUBLE = {"dtype": "float64"}
OVER = {
    "embed": ("pos",),
    "pos_embed": ("pos",),
    "resid_pre": ("layer", "pos"),
    "resid_mid": ("pos", "layer"),
    "resid_post": ("layer",),
    "attn_out": ("layer", "pos"),
    "mlp_out": ("layer",),
    "q": ("head", "layer", "pos"),
    "k": ("layer", "head"),
    "v": ("layer", "pos"),
    "z": ("layer", "pos", "head"),
    "result": ("layer", "head"),
    "pattern": ("layer", "head", "query", "key"),
    "scores": ("layer", "query"),
    "pre": ("layer", "neuron"),
    "post": ("layer", "pos", "neuron"),
}


def lookup_pairs(kind, *, repeats=1.0, n=24):
    task = PermutationLookup(split_seed=0, repeat_ratio=repeats)
    return PromptPairs.from_task(task, task.sample(n, split="test", generator=seeded(1)), kind=kind).read_last()


def moved(result, direction="noising"):
    unpatched = result.clean if direction == "noising" else result.corrupted
    return (result.value - unpatched).sel(direction=direction).isel(metric=0)


class TestShape:
    @pytest.mark.parametrize("kind", OVER)
    def test_is_that_of_the_exact_sweep(self, kind):
        model, pairs = foreign_model(), random_pairs(n=2)
        arguments = {"kind": kind, "over": OVER[kind], "metrics": (LOGIT_DIFF, LOG_PROB)}
        estimated, exact = estimate(model, pairs, **arguments), patch(model, pairs, **arguments)
        assert estimated.value.dims == exact.value.dims
        for name in exact.coords:
            assert estimated[name].equals(exact[name])
        assert np.allclose(estimated.clean, exact.clean, atol=1e-5)
        assert np.allclose(estimated.corrupted, exact.corrupted, atol=1e-5)

    def test_cells_add_up(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        whole = moved(estimate(model, pairs, kind="z", over=("layer",)))
        assert np.allclose(
            moved(estimate(model, pairs, kind="z", over=("head", "layer", "pos"))).sum(("head", "pos")), whole
        )

    def test_only_some_cells(self):
        model, pairs = foreign_model(), random_pairs()
        some = {"layer": [1], "pos": [5, 2]}
        whole = estimate(model, pairs, kind="v", over=("layer", "pos"))
        found = estimate(model, pairs, kind="v", over=("layer", "pos"), only=some)
        assert np.allclose(found.value, whole.value.sel(some))

    def test_what_was_done_is_said(self, tmp_path):
        model = foreign_model()
        with global_generators_untouched():
            result = estimate(model, random_pairs(), kind="result", over=("layer", "head"))
        assert result.attrs["intervention"].startswith("first-order estimate of result")
        assert (result.attrs["attention"], result.attrs["method"]) == ("linear", "gradients")
        assert reads_back(result, tmp_path / "result.nc")


class TestFirstOrder:
    @pytest.mark.parametrize("kind", ["z", "resid_pre", "v", "mlp_out", "post", "embed"])
    def test_a_linear_model_is_estimated_exactly(self, kind):
        model, pairs = foreign_model(**DOUBLE, normalization_type=None, act_fn="relu"), random_pairs()
        with torch.no_grad():
            for block in model.blocks:
                block.attn.W_Q.zero_()
                block.attn.b_Q.zero_()
                block.mlp.b_in += 1000
                block.mlp.b_out -= 1000 * block.mlp.W_out.sum(0)
        arguments = {"kind": kind, "over": OVER[kind]}
        estimated, exact = estimate(model, pairs, **arguments), patch(model, pairs, **arguments)
        assert abs(estimated.value - exact.value).max() < 1e-9
        assert abs(moved(exact)).max() > 1e-3

    @pytest.mark.parametrize("kind", ["resid_mid", "q", "pattern", "scores", "pre"])
    def test_it_is_the_slope_of_the_patch(self, kind):
        model, pairs, step = foreign_model(**DOUBLE), random_pairs(), 1e-5
        name = Site(kind=kind, layer=0).hook
        with torch.no_grad():
            clean, corrupted = (model.run_with_cache(side.inputs)[1][name] for side in (pairs.clean, pairs.corrupted))
            method = torch.where(clean == corrupted, 0, corrupted - clean)
            ends = []
            for stride in (step, -step):
                hooks = [(name, lambda x, hook, stride=stride: x + stride * method)]
                ends.append(mean_logit_difference(pairs, model.run_with_hooks(pairs.clean.inputs, fwd_hooks=hooks)))
        found = moved(estimate(model, pairs, kind=kind, over=("layer",))).sel(layer=0)
        assert np.allclose(found, (ends[0] - ends[1]) / (2 * step), atol=1e-6)
        assert abs(found).max() > 1e-3

    def test_denoising_takes_the_gradient_in_the_corrupted_run(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        exchanged = PromptPairs(clean=pairs.corrupted, corrupted=pairs.clean, name="exchanged")
        arguments = {"kind": "z", "over": ("layer", "head")}
        denoised = moved(estimate(model, pairs, **arguments), "denoising")
        assert np.allclose(denoised, -moved(estimate(model, exchanged, **arguments)))


class TestRecomputedAttention:
    @pytest.mark.parametrize("over", [("layer", "pos", "head"), ("layer", "head"), ("layer",)])
    @pytest.mark.parametrize("kind", ["q", "k"])
    def test_is_exact_where_nothing_but_attention_bends(self, kind, over):
        model, pairs = foreign_model(**DOUBLE, normalization_type=None, attn_only=True, n_layers=1), random_pairs()
        arguments = {"kind": kind, "over": over}
        exact = patch(model, pairs, **arguments)
        assert abs(estimate(model, pairs, **arguments, attention="recomputed").value - exact.value).max() < 1e-9
        assert abs(estimate(model, pairs, **arguments).value - exact.value).max() > 1e-3

    @pytest.mark.parametrize("kind", ["q", "k"])
    def test_leaves_later_layers_as_they_are(self, kind):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        arguments = {"kind": kind, "over": ("layer", "pos", "head"), "attention": "recomputed"}
        whole = estimate(model, pairs, **arguments)
        last = estimate(model, pairs, **arguments, only={"layer": [1], "pos": [3, 4]})
        assert np.allclose(last.value, whole.value.sel(layer=[1], pos=[3, 4]))

    @pytest.mark.parametrize("kind", ["q", "k"])
    def test_heads_that_share_keys(self, kind):
        model = foreign_model(**DOUBLE, normalization_type=None, attn_only=True, n_layers=1, n_key_value_heads=1)
        arguments = {"kind": kind, "over": ("layer", "pos", "head")}
        exact = patch(model, random_pairs(), **arguments)
        found = estimate(model, random_pairs(), **arguments, attention="recomputed")
        assert abs(found.value - exact.value).max() < 1e-9

    def test_sees_a_saturated_head(self):
        model, pairs = two_layer_recall(), lookup_pairs("move_repeat")
        arguments = {"kind": "q", "over": ("layer", "head")}
        exact = moved(patch(model, pairs, **arguments)).mean("prompt").sel(layer=1, head=1)
        found = {
            attention: moved(estimate(model, pairs, **arguments, attention=attention)).mean("prompt")
            for attention in ("linear", "recomputed")
        }
        assert exact < -50
        assert abs(found["linear"]).max() < 1e-3
        assert found["recomputed"].sel(layer=1, head=1) == pytest.approx(float(exact), rel=1e-3)


class TestKnownCircuits:
    def test_elimination_is_read_right(self):
        pairs = lookup_pairs("exchange_answer", repeats=0.0)
        arguments = {"kind": "z", "over": ("layer", "pos", "head")}
        estimated, exact = (read(elimination_only(), pairs, **arguments) for read in (estimate, patch))
        assert np.allclose(effects(estimated).ratio, effects(exact).ratio, atol=1e-4)
        figures = approximation(estimated, exact)
        assert figures.relative_error.max() < 1e-3

    def test_an_untrained_model_moves_little(self):
        model = build(ModelSpec(d_model=32, n_heads=2), d_vocab=6, n_ctx=9, seed=0)
        result = moved(estimate(model, lookup_pairs("move_repeat"), kind="z", over=("layer", "head")))
        assert abs(result.mean("prompt")).max() < 0.2


class TestModelsAndMemory:
    def test_chunks_change_nothing(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs(n=5)
        arguments = {"kind": "k", "over": ("layer", "pos"), "attention": "recomputed"}
        whole, cut = (estimate(model, pairs, **arguments, max_bytes=size) for size in (2**28, 350_000))
        assert np.allclose(whole.value, cut.value, atol=1e-12)
        with pytest.raises(InputError, match="max_bytes leaves"):
            estimate(model, pairs, **arguments, max_bytes=10_000)

    def test_a_bridge_gives_the_same(self):
        model, pairs = foreign_model(d_head=4, act_fn="gelu"), random_pairs()
        arguments = {"kind": "z", "over": ("layer", "head")}
        of_bridge = estimate(as_bridge(model), pairs, **arguments)
        assert np.allclose(of_bridge.value, estimate(model, pairs, **arguments).value, atol=1e-4)

    def test_hooks_stay_and_no_gradient_is_kept(self):
        model, pairs = foreign_model(), random_pairs()
        model.add_hook("blocks.0.hook_attn_out", lambda x, hook: 0 * x)
        result = moved(estimate(model, pairs, kind="z", over=("layer",)))
        assert (result.sel(layer=0) == 0).all()
        assert (result.sel(layer=1) != 0).any()
        assert all(parameter.grad is None for parameter in model.parameters())
        assert len(model.hook_dict["blocks.0.hook_attn_out"].fwd_hooks) == 1

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"attention": "recomputed"}, "attention can be recomputed where q or k is patched; leave it linear for z"),
            ({"attention": "exact"}, "attention must be one of: linear, recomputed"),
            ({"metrics": (ACCURACY,)}, "metric accuracy has no gradient"),
            ({"directions": ("sideways",)}, "noising, denoising; got 'sideways'"),
            ({"over": ("pos",)}, "over must name layer"),
        ],
    )
    @pytest.mark.usefixtures("as_installed")
    def test_wrong_arguments_are_refused(self, arguments, words):
        with pytest.raises(InputError, match=words):
            estimate(foreign_model(), random_pairs(), **{"kind": "z", "over": ("layer",), **arguments})
