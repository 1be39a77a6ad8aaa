"""What bridges go on with, against the HookedTransformer with the same weights; and what trying it leaves behind."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.analyses.estimates import estimate
from mnemoscope.analyses.patching import patch
from mnemoscope.core.batch import Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Add, Knockout, Patch, SetPattern, Zero
from mnemoscope.core.patterns import uniform
from mnemoscope.core.site import ATTENTION, Site
from mnemoscope.interventions import writing
from mnemoscope.interventions.run import intervene, run_with
from tests.bridge import HEARD_BY_NATIVE, as_bridge, llama_and_bridge
from tests.split_hooks import random_pairs
from tests.support import foreign_model, global_generators_untouched, seeded

PAIRS = random_pairs()
BATCH = PAIRS.clean
OTHER = Named(name="other", value=PAIRS.corrupted)
MIDDLE = Site(kind="resid_mid", layer=0)
PLACED = Site(kind="resid_mid", layer=0, pos=-2)
VECTOR = Named(name="vector", value=torch.randn(8, generator=seeded()))
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def native():
    model = foreign_model(d_head=4, act_fn="gelu")
    return model, as_bridge(model)


MAKE = {"native": native, "llama": llama_and_bridge}


@pytest.fixture(scope="module", params=MAKE)
def pair(request):
    return MAKE[request.param]()


def hooks_on(model):
    return {name: len(point._forward_hooks) for name, point in model.hook_dict.items() if point._forward_hooks}


class TestTheMiddleOfABlock:
    @pytest.mark.parametrize("way", ["noising", "denoising"])
    def test_patching_gives_the_same(self, pair, way):
        arguments = {"kind": "resid_mid", "over": ("layer", "pos"), "directions": (way,)}
        ours, theirs = (patch(model, PAIRS, **arguments) for model in pair)
        np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
        base = ours.clean if way == "noising" else ours.corrupted
        assert abs(ours.value - base).max() > 0.5

    def test_attribution_patching_gives_the_same(self, pair):
        arguments = {"kind": "resid_mid", "over": ("layer", "pos")}
        ours, theirs = (estimate(model, PAIRS, **arguments) for model in pair)
        np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
        assert abs(ours.value - ours.clean).max() > 0.5

    @pytest.mark.parametrize(
        "intervention",
        [
            Zero(site=PLACED),
            Patch(site=PLACED, source=OTHER),
            Patch(site=MIDDLE, source=OTHER),
            Add(site=MIDDLE, direction=VECTOR, coefficient=2.0),
        ],
    )
    def test_interventions_give_the_same(self, pair, intervention):
        ours, theirs = (run_with(model, BATCH, [intervention]) for model in pair)
        torch.testing.assert_close(theirs, ours, **CLOSE)

    def test_is_read_and_shown_as_it_is_written(self, pair):
        names = [f"blocks.0.hook_{kind}" for kind in ("attn_out", "resid_mid", "mlp_out", "resid_post")]
        caches = []
        for model in pair:
            with intervene(model, BATCH, [Zero(site=PLACED)]):
                caches.append(model.run_with_cache(BATCH.inputs, names_filter=lambda name: name in names)[1])
        for name in names:
            torch.testing.assert_close(caches[1][name], caches[0][name], **CLOSE)
        assert (caches[1][names[1]][:, -2] == 0).all()

    def test_a_vector_there_is_the_same_vector_in_the_output_of_attention(self, pair):
        logits = [
            run_with(pair[1], BATCH, [Add(site=Site(kind=kind, layer=1), direction=VECTOR)])
            for kind in ("resid_mid", "attn_out")
        ]
        torch.testing.assert_close(logits[0], logits[1], **CLOSE)
        assert (logits[0] - pair[1](BATCH.inputs)).abs().max() > 0.1

    @pytest.mark.parametrize("kind", ["resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"])
    @pytest.mark.parametrize("outer", [True, False])
    def test_others_in_the_same_layer_come_in_the_order_of_the_model(self, pair, kind, outer):
        other = Patch(site=Site(kind=kind, layer=0, pos=(0, 3, -2)), source=OTHER)
        first, second = (Zero(site=PLACED), other) if outer else (other, Zero(site=PLACED))
        nested, together = [], []
        for model in pair:
            with intervene(model, BATCH, [first]):
                nested.append(run_with(model, BATCH, [second]))
            together.append(run_with(model, BATCH, [first, second]))
        torch.testing.assert_close(nested[1], nested[0], **CLOSE)
        torch.testing.assert_close(together[1], together[0], **CLOSE)

    def test_hooks_after_the_block_act_on_the_changed_stream(self, pair):
        found = []
        for model in pair:
            model.add_hook("blocks.0.hook_resid_post", lambda x, hook: 3 * x)
            found.append(run_with(model, BATCH, [Zero(site=PLACED)]))
            model.reset_hooks()
        torch.testing.assert_close(found[1], found[0], **CLOSE)

    def test_what_changes_nothing_changes_no_bit(self, pair):
        same = Named(name="same", value=BATCH)
        assert torch.equal(run_with(pair[1], BATCH, [Patch(site=MIDDLE, source=same)]), pair[1](BATCH.inputs))

    def test_a_parallel_block_has_none(self):
        with pytest.raises(InputError, match=r"no hook point blocks\.0\.hook_resid_mid"):
            run_with(foreign_model(parallel_attn_mlp=True), BATCH, [Zero(site=MIDDLE)])


class TestAttention:
    @pytest.mark.parametrize("kind", ATTENTION)
    def test_is_patched_where_the_model_goes_on_with_it(self, kind):
        model, bridge = llama_and_bridge()
        for function in (patch, estimate):
            ours, theirs = (function(m, PAIRS, kind=kind, over=("layer", "head")) for m in (model, bridge))
            np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
            assert abs(ours.value - ours.clean).max() > 0.1

    def test_is_set_and_knocked_out_where_the_model_goes_on_with_it(self):
        pair = llama_and_bridge()
        for intervention in (
            SetPattern(site=Site(kind="pattern", layer=0, head=1), mechanism=uniform()),
            Knockout(site=Site(kind="scores", layer=1, pos=-1, key=0)),
        ):
            ours, theirs = (run_with(model, BATCH, [intervention]) for model in pair)
            torch.testing.assert_close(theirs, ours, **CLOSE)
            assert (ours - pair[0](BATCH.inputs)).abs().max() > 1e-2

    @pytest.mark.parametrize("kind", sorted(HEARD_BY_NATIVE))
    def test_is_written_where_a_native_bridge_goes_on_with_it(self, kind):
        ours, theirs = (patch(model, PAIRS, kind=kind, over=("layer", "head")) for model in native())
        np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
        assert abs(ours.value - ours.clean).max() > 0.1

    @pytest.mark.parametrize("kind", sorted({*ATTENTION} - HEARD_BY_NATIVE))
    def test_is_refused_where_the_model_goes_on_with_its_own(self, kind):
        bridge, site = native()[1], Site(kind=kind, layer=1)
        with pytest.raises(InputError, match=rf"TransformerBridge does not go on .* site L1 {kind}.*HookedTransformer"):
            run_with(bridge, BATCH, [Zero(site=site)])
        for function in (patch, estimate):
            with pytest.raises(InputError, match=rf"L0 {kind}"):
                function(bridge, PAIRS, kind=kind, over=("layer",))

    def test_recomputed_attention_needs_it(self):
        model, bridge = llama_and_bridge()
        arguments = {"kind": "q", "over": ("layer", "head"), "attention": "recomputed"}
        ours, theirs = (estimate(m, PAIRS, **arguments) for m in (model, bridge))
        np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
        if "pattern" in HEARD_BY_NATIVE:
            ours, theirs = (estimate(m, PAIRS, **arguments) for m in native())
            np.testing.assert_allclose(theirs.value, ours.value, atol=1e-4)
        else:
            with pytest.raises(InputError, match="L0 pattern"):
                estimate(native()[1], PAIRS, **arguments)


class TestTrying:
    def test_an_alias_that_is_something_else_is_refused(self):
        with pytest.raises(InputError, match="pos_embed"):  # rotary positions are no part of the stream
            run_with(llama_and_bridge()[1], BATCH, [Zero(site=Site(kind="pos_embed"))])

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_any_number_type(self, dtype):
        bridge = llama_and_bridge()[1]
        with torch.no_grad():
            bridge.original_model.model.layers[0].mlp.down_proj.weight.mul_(20)
        bridge.to(dtype)
        assert writing.bypassed_layers(bridge, [0, 1]) == {0, 1}
        for kind in ("resid_mid", "pattern", "scores", "q", "mlp_out"):
            writing.check_written(bridge, kind, [0, 1])

    def test_costs_two_passes_once_and_none_of_a_hooked_transformer(self):
        model, bridge = native()
        passes = []
        for subject in (model, bridge):
            subject.unembed.register_forward_hook(lambda *_: passes.append(1))
        for subject, expected in ((bridge, 2), (bridge, 2), (model, 2)):
            writing.check_written(subject, "resid_mid", [0, 1])
            assert len(passes) == expected

    def test_leaves_nothing_behind(self):
        _, bridge = llama_and_bridge(attention_dropout=0.5)
        bridge.train()
        seen = []
        bridge.add_hook("blocks.0.hook_resid_mid", lambda x, hook: seen.append(x.shape))
        bridge.add_hook("blocks.1.hook_resid_post", lambda x, hook: x + torch.ones(len(BATCH), 6, 8))
        before, state = hooks_on(bridge), [m.training for m in bridge.modules()]
        with global_generators_untouched():
            for kind in ("resid_mid", "pattern", "embed"):
                writing.check_written(bridge, kind, [None] if kind == "embed" else [0])
        assert hooks_on(bridge) == before
        assert len(before) >= 2
        assert [m.training for m in bridge.modules()] == state
        assert not seen
        assert all(parameter.grad is None for parameter in bridge.parameters())
        bridge.eval()(BATCH.inputs)
        assert len(seen) == 1  # the hook that was hidden is heard again

    def test_nothing_is_left_after_an_exception(self):
        _, bridge = native()

        def fails(z, hook):
            raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"), intervene(bridge, BATCH, [Zero(site=MIDDLE)]):
            bridge.run_with_hooks(BATCH.inputs, fwd_hooks=[("blocks.0.hook_mlp_out", fails)])
        assert not hooks_on(bridge)
        clean = replace(BATCH, inputs=BATCH.inputs[:2], targets=BATCH.targets[:2], scored=BATCH.scored[:2])
        assert torch.equal(run_with(bridge, clean, []), bridge(clean.inputs))

    def test_keeps_no_model(self):
        _, bridge = native()
        run_with(bridge, BATCH, [Zero(site=MIDDLE)])
        kept = weakref.ref(bridge)
        del bridge
        gc.collect()
        assert kept() is None

    def test_nan_is_named(self):
        _, bridge = native()
        with torch.no_grad():
            next(bridge.parameters()).fill_(torch.nan)
        with pytest.raises(InputError, match="logits hold NaN"):
            writing.check_written(bridge, "pattern", [0])
