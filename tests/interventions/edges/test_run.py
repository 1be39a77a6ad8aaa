"""Many choices of what edges carry, against TransformerLens's own hook points for the input of every head."""

from dataclasses import replace

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL, LOG_PROB
from mnemoscope.core.site import LOGITS, Edge, Site
from mnemoscope.interventions import edge_states as module
from mnemoscope.interventions.edge_states import sweep_states
from mnemoscope.interventions.graph import EdgeState, model_edges
from mnemoscope.interventions.measurement import SweepQuestion
from tests.split_hooks import by_hand, mean_logit_difference, random_pairs
from tests.support import foreign_model, global_generators_untouched

MODELS = {
    "LN": {"normalization_type": "LN"},
    "none": {"normalization_type": None},
    "folded": {"normalization_type": "LNPre", "n_layers": 3},
    "RMS, rotary": {
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_dim": 2,
        "d_head": 4,
    },
    "attention only": {"normalization_type": "LN", "attn_only": True},
    "parallel": {"normalization_type": "LN", "parallel_attn_mlp": True},
    "gated": {"normalization_type": "RMS", "gated_mlp": True, "act_fn": "silu"},
}


def one_at_a_time(n, rest=EdgeState.LIVE):
    """A cell an edge, in which it is patched."""
    states = torch.full((n, n), int(rest))
    states[torch.arange(n), torch.arange(n)] = int(EdgeState.PATCHED)
    return states


def sweep(model, pairs, chosen, states, **changes):
    own = {name: changes.pop(name) for name in ("freeze", "replacement") if name in changes}
    return sweep_states(SweepQuestion(model=model, pairs=pairs, **changes), chosen, states, **own)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("embeddings", ["together", "apart"])
def test_equals_one_hooked_forward_an_edge(name, embeddings):
    model, pairs = foreign_model(**MODELS[name], dtype="float64"), random_pairs()
    chosen = model_edges(model, embeddings=embeddings)
    swept = sweep(model, pairs, chosen, one_at_a_time(len(chosen)))
    sides = pairs.clean.inputs, pairs.corrupted.inputs
    for number, (base, other) in enumerate((sides, sides[::-1])):
        expected = mean_logit_difference(pairs, by_hand(model, base, other, chosen))
        assert torch.allclose(swept.value[number, 0], expected, rtol=0, atol=1e-9)
        assert (expected - expected.mean(0)).abs().max() > 0.01  # edges matter, so that a mistake would show


def test_in_single_precision():
    model, pairs = foreign_model(normalization_type="LN"), random_pairs()
    chosen = model_edges(model)
    expected = mean_logit_difference(pairs, by_hand(model, pairs.clean.inputs, pairs.corrupted.inputs, chosen))
    assert torch.allclose(
        sweep(model, pairs, chosen, one_at_a_time(len(chosen))).value[0, 0], expected.double(), atol=1e-5
    )


def test_positions_by_number_and_by_latent():
    model, pairs = foreign_model(normalization_type="LN", dtype="float64"), random_pairs(n=3, seed=1)
    chosen = model_edges(model)
    latent = torch.tensor([0, 2, -1])

    pairs = replace(pairs, clean=replace(pairs.clean, known={"place": latent}))
    by_number = sweep(model, pairs, [edge.at(2) for edge in chosen], one_at_a_time(len(chosen)), directions=["noising"])
    by_latent = sweep(
        model, pairs, [edge.at("place") for edge in chosen], one_at_a_time(len(chosen)), directions=["noising"]
    )
    sides = pairs.clean.inputs, pairs.corrupted.inputs
    place = torch.arange(6) == latent[:, None]
    for swept, mask in ((by_number, (torch.arange(6) == 2).expand(3, -1)), (by_latent, place)):
        expected = mean_logit_difference(pairs, by_hand(model, *sides, chosen, at=mask.double()))
        assert torch.allclose(swept.value[0, 0], expected, rtol=0, atol=1e-9)
    nowhere = swept.clean[0, 2].expand(len(chosen))
    assert torch.allclose(by_latent.value[0, 0, :, 2], nowhere, rtol=0, atol=1e-9)


class TestIdentities:
    model, pairs = foreign_model(normalization_type="LN", n_layers=3), random_pairs()
    chosen = model_edges(model)
    n = len(chosen)

    def all_in(self, state, **changes):
        return sweep(self.model, self.pairs, self.chosen, torch.full((1, self.n), int(state)), **changes)

    def test_all_live_is_the_model_itself_exactly(self):
        swept = self.all_in(EdgeState.LIVE)
        assert torch.equal(swept.value[0, :, 0], swept.clean)
        assert torch.equal(swept.value[1, :, 0], swept.corrupted)

    def test_all_frozen_is_the_model_itself(self):
        swept = self.all_in(EdgeState.FROZEN)
        assert torch.allclose(swept.value[0, :, 0], swept.clean, atol=1e-5)

    def test_all_patched_is_the_other_run(self):
        swept = self.all_in(EdgeState.PATCHED)
        assert torch.allclose(swept.value[0, :, 0], swept.corrupted, atol=1e-5)
        assert torch.allclose(swept.value[1, :, 0], swept.clean, atol=1e-5)

    def test_embeddings_patched_and_the_rest_live_is_the_other_run(self):
        states = torch.tensor(
            [[EdgeState.PATCHED if edge.writer.kind == "resid_pre" else EdgeState.LIVE for edge in self.chosen]]
        )
        swept = sweep(self.model, self.pairs, self.chosen, states)
        assert torch.allclose(swept.value[0, :, 0], swept.corrupted, atol=1e-5)

    def test_frozen_attention_and_normalisation_make_paths_add_up(self):
        """With patterns and scales fixed, an attention-only model is linear in what its writers write."""
        model = foreign_model(normalization_type="LN", attn_only=True, dtype="float64")
        chosen, freeze = model_edges(model), ["attention", "layer_norm"]
        first = [edge for edge in chosen if edge.writer.kind == "resid_pre"]
        options = {"freeze": freeze, "directions": ["noising"]}
        swept = sweep(model, self.pairs, first, one_at_a_time(len(first)), **options)
        together = sweep(model, self.pairs, first, torch.full((1, len(first)), int(EdgeState.PATCHED)), **options)
        effects = (swept.value - swept.clean[:, None])[0, 0]
        assert torch.allclose(effects.sum(0), (together.value - together.clean[:, None])[0, 0, 0], atol=1e-9)
        through_q = [i for i, edge in enumerate(first) if edge.through in ("q", "k")]
        assert torch.allclose(effects[through_q], torch.zeros(1, dtype=torch.double), atol=1e-12)
        free = sweep(model, self.pairs, first, one_at_a_time(len(first)), directions=["noising"])
        assert (free.value - swept.value).abs().max() > 0.01

    @pytest.mark.parametrize("replacement", ["patch", "mean"])
    def test_the_budget_does_not_change_the_result(self, monkeypatch, replacement):
        options = {"metrics": [LOG_PROB, KL], "replacement": replacement, "directions": ["denoising"]}
        states = one_at_a_time(self.n)[::4]
        whole = sweep(self.model, self.pairs, self.chosen, states, **options)
        monkeypatch.setattr(module, "CHUNK_BYTES", 60_000)
        parts = sweep(self.model, self.pairs, self.chosen, states, **options)
        assert torch.allclose(parts.value, whole.value, atol=1e-5)

    def test_leaves_nothing_behind(self):
        before = self.model(self.pairs.clean.inputs)
        with global_generators_untouched():
            sweep(self.model, self.pairs, self.chosen, one_at_a_time(self.n))
        assert torch.equal(self.model(self.pairs.clean.inputs), before)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in self.model.modules())


class TestReplacement:
    model, pairs = foreign_model(normalization_type="LN", dtype="float64"), random_pairs(n=5)
    edge = Edge(writer=Site(kind="mlp_out", layer=1))

    def patched(self, replacement):
        return sweep(self.model, self.pairs, [self.edge], torch.tensor([[EdgeState.PATCHED]]), replacement=replacement)

    @pytest.mark.parametrize("replacement", ["mean", "zero"])
    def test_into_the_logits_by_hand(self, replacement):
        swept = self.patched(replacement)
        names = "blocks.1.hook_mlp_out", "blocks.1.hook_resid_post"
        caches = [self.model.run_with_cache(side.inputs)[1] for side in (self.pairs.clean, self.pairs.corrupted)]
        for number, (base, other) in enumerate((caches, caches[::-1])):
            put = other[names[0]].mean(0) if replacement == "mean" else 0
            stream = base[names[1]] - base[names[0]] + put
            logits = self.model.unembed(self.model.ln_final(stream))
            assert torch.allclose(
                swept.value[number, 0, 0], mean_logit_difference(self.pairs, logits).double(), atol=1e-9
            )

    def test_the_mean_is_over_all_prompts_whatever_the_chunks(self, monkeypatch):
        whole = self.patched("mean")
        monkeypatch.setattr(module, "CHUNK_BYTES", 1)
        assert torch.allclose(self.patched("mean").value, whole.value, atol=1e-9)


class TestRefusals:
    pairs = random_pairs(n=2)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"original_architecture": "Olmo2ForCausalLM"}, "original_architecture is Olmo2ForCausalLM"),
            ({"positional_embedding_type": "shortformer"}, "positional_embedding_type is shortformer"),
        ],
    )
    def test_models_whose_parts_do_not_add_up(self, changes, message):
        model = foreign_model(**changes)
        with pytest.raises(InputError, match=message):
            sweep(model, self.pairs, model_edges(model), one_at_a_time(len(model_edges(model))))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"directions": ["forward"]}, "a direction must be one of: noising, denoising"),
            ({"freeze": ["mlp"]}, "freeze must be one of: attention, layer_norm"),
            ({"replacement": "noise"}, "replacement must be one of: patch, mean, zero"),
            ({"max_bytes": 1000}, "allow [0-9,]+ more"),
        ],
    )
    @pytest.mark.usefixtures("as_installed")
    def test_wrong_arguments(self, changes, message):
        chosen = [Edge(writer=Site(kind="mlp_out", layer=0), reader=LOGITS)]
        with pytest.raises(InputError, match=message):
            sweep(foreign_model(), self.pairs, chosen, torch.tensor([[EdgeState.PATCHED]]), **changes)
