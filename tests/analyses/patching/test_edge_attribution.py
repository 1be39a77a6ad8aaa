"""Edge attribution patching: the published scores, exact where the model is linear, and where it is known to fail."""

import numpy as np
import pytest
import torch

from mnemoscope.analyses.estimates import attribute_edges, estimate
from mnemoscope.analyses.patching import patch_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import ACCURACY, KL, LOG_PROB, LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Edge, Site
from mnemoscope.core.specification import ModelSpec
from mnemoscope.interventions.graph import model_edges
from mnemoscope.models.building import build
from mnemoscope.systems.tiny_recall.constructed import dissociated, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.published_eap import scores
from tests.split_hooks import added, mean_logit_difference, output, random_pairs, split
from tests.support import foreign_model, global_generators_untouched, reads_back, seeded

DOUBLE = {"dtype": "float64"}
MODELS = {
    "LN": {},
    "none": {"normalization_type": None},
    "LNPre": {"normalization_type": "LNPre"},
    "RMS": {"normalization_type": "RMS"},
    "attention only": {"attn_only": True, "n_layers": 3},
    "rotary": {"positional_embedding_type": "rotary", "d_head": 4, "rotary_dim": 4},
    "parallel": {"parallel_attn_mlp": True},
    "gated": {"gated_mlp": True},
    "shared keys": {"n_heads": 4, "n_key_value_heads": 2},
}
INPUT = Site(kind="resid_pre", layer=0)


def lookup_pairs(kind, n=24):
    task = PermutationLookup(split_seed=0, repeat_ratio=1.0)
    return PromptPairs.from_task(task, task.sample(n, split="test", generator=seeded(1)), kind=kind).read_last()


def moved(result, direction="noising"):
    """By how much the metric is said to move, a number an edge and prompt."""
    unpatched = result.clean if direction == "noising" else result.corrupted
    return (result.value - unpatched).sel(direction=direction)


def linear_model():
    """Two layers in which nothing but sums happens: attention to all alike, neurons that are always on."""
    model = foreign_model(**DOUBLE, normalization_type=None, act_fn="relu")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_Q.zero_()
            block.mlp.b_in += 1000
            block.mlp.b_out -= 1000 * block.mlp.W_out.sum(0)
    return model


class TestPublished:
    @pytest.mark.parametrize("name", MODELS)
    def test_scores_are_minus_those_of_the_authors(self, name):
        model, pairs = foreign_model(**DOUBLE, **MODELS[name]), random_pairs()
        chosen = model_edges(model)
        expected = scores(model, pairs, chosen, [[]])
        found = -moved(attribute_edges(model, pairs)).isel(metric=0).mean("prompt")
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
        assert expected.abs().min() > 0

    def test_denoising_is_noising_of_the_exchanged_pairs(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        exchanged = PromptPairs(clean=pairs.corrupted, corrupted=pairs.clean, name="exchanged")
        denoised = moved(attribute_edges(model, pairs), "denoising")
        noised = moved(attribute_edges(model, exchanged))
        assert np.allclose(denoised, -noised, atol=1e-12)  # answer and foil are exchanged too


class TestFirstOrder:
    def test_a_linear_model_is_estimated_exactly(self):
        model, pairs = linear_model(), random_pairs()
        estimated, exact = attribute_edges(model, pairs), patch_edges(model, pairs)
        assert estimated.value.dims == exact.value.dims
        assert abs(estimated.value - exact.value).max() < 1e-9
        assert abs(moved(exact)).max() > 1e-3

    def test_edges_into_the_logits_are_exact_without_a_final_norm(self):
        model, pairs = foreign_model(**DOUBLE, normalization_type=None), random_pairs()
        estimated, exact = attribute_edges(model, pairs), patch_edges(model, pairs)
        error = abs(estimated.value - exact.value)
        to_logits = exact.reader == "logits"
        assert error.sel(edge=to_logits).max() < 1e-9
        assert error.sel(edge=~to_logits).max() > 1e-3

    @pytest.mark.parametrize("name", ["LN", "rotary", "parallel"])
    def test_it_is_the_slope_of_the_patch(self, name):
        model, pairs, step = foreign_model(**DOUBLE, **MODELS[name]), random_pairs(), 1e-4
        found = moved(attribute_edges(model, pairs, directions=("noising",))).isel(metric=0)
        with split(model), torch.no_grad():
            clean, corrupted = (model.run_with_cache(side.inputs)[1] for side in (pairs.clean, pairs.corrupted))
            for edge in model_edges(model)[::7]:
                method = output(model, corrupted, edge.writer) - output(model, clean, edge.writer)
                ends = []
                for stride in (step, -step):
                    hooks = [added(model, edge, stride * method)]
                    ends.append(mean_logit_difference(pairs, model.run_with_hooks(pairs.clean.inputs, fwd_hooks=hooks)))
                assert np.allclose(found.sel(edge=str(edge)), (ends[0] - ends[1]) / (2 * step), atol=1e-6)

    def test_edges_of_a_writer_add_up_to_the_attribution_of_its_output(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        of_edges = moved(attribute_edges(model, pairs))
        of_heads = moved(estimate(model, pairs, kind="z", over=("layer", "head")))
        for layer, head in ((0, 0), (0, 1), (1, 1)):
            total = of_edges.sel(edge=of_edges.writer == f"L{layer}H{head}").sum("edge")
            assert np.allclose(total, of_heads.sel(layer=layer, head=head), atol=1e-12)

    def test_several_metrics_at_once_are_each_by_itself(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        both = attribute_edges(model, pairs, metrics=(LOGIT_DIFF, LOG_PROB))
        assert np.allclose(
            both.value.sel(metric="log_prob"), attribute_edges(model, pairs, metrics=(LOG_PROB,)).value.isel(metric=0)
        )


class TestWhichEdges:
    def test_positions_add_up(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        edge = Edge(writer=INPUT, reader=Site(kind="z", layer=1, head=0), through="v")
        whole = moved(attribute_edges(model, pairs, chosen=[edge])).isel(edge=0)
        apart = moved(attribute_edges(model, pairs, chosen=[edge.at(pos) for pos in range(6)]))
        assert np.allclose(apart.sum("edge"), whole, atol=1e-12)
        assert abs(apart.isel(edge=-1)).max() > 0

    def test_an_edge_without_a_way_goes_through_all_three(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        edge = Edge(writer=INPUT, reader=Site(kind="z", layer=1, head=0))
        whole = moved(attribute_edges(model, pairs, chosen=[edge])).isel(edge=0)
        every = moved(attribute_edges(model, pairs))
        own = every.sel(edge=(every.writer == "input") & (every.reader == "L1H0"))
        assert own.sizes["edge"] == 3
        assert np.allclose(own.sum("edge"), whole, atol=1e-12)

    def test_positional_embeddings_carry_no_difference(self):
        result = moved(attribute_edges(foreign_model(**DOUBLE), random_pairs(), embeddings="apart"))
        assert (result.sel(edge=result.writer == "pos_embed") == 0).all()
        assert (result.sel(edge=result.writer == "embed") != 0).all()

    def test_labels_are_those_of_the_exact_sweep(self, tmp_path):
        model, pairs = foreign_model(), random_pairs()
        with global_generators_untouched():
            estimated = attribute_edges(model, pairs, metrics=(LOGIT_DIFF, LOG_PROB))
        exact = patch_edges(model, pairs, metrics=(LOGIT_DIFF, LOG_PROB))
        for name in exact.coords:
            assert estimated[name].equals(exact[name])
        assert np.allclose(estimated.clean, exact.clean)
        assert np.allclose(estimated.corrupted, exact.corrupted)
        assert estimated.attrs["method"] == "gradients"
        assert reads_back(estimated, tmp_path / "result.nc")


class TestKnownCircuits:
    def test_values_and_what_is_written_to_the_logits_are_read_right(self):
        model, pairs = two_layer_recall(), lookup_pairs("exchange_answer")
        estimated, exact = (moved(read(model, pairs)).mean("prompt") for read in (attribute_edges, patch_edges))
        assert np.allclose(estimated, exact, atol=0.01)
        assert abs(exact.sel(edge="L0H1 → L1H1 v")).item() > 50

    def test_a_saturated_head_is_not_seen_through_its_queries(self):
        model, pairs = two_layer_recall(), lookup_pairs("move_repeat")
        estimated, exact = (
            moved(read(model, pairs)).mean("prompt").sel(edge="input → L1H1 q").item()
            for read in (attribute_edges, patch_edges)
        )
        assert exact < -50
        assert abs(estimated) < 1e-3

    def test_steep_neurons_are_overrated_beyond_all_measure(self):
        model, pairs = dissociated(), lookup_pairs("move_repeat")
        result = attribute_edges(model, pairs)
        whole = abs(result.clean - result.corrupted).mean().item()
        assert abs(moved(result).mean("prompt").sel(edge="input → L0H1 q")).item() > 100 * whole

    def test_an_untrained_model_moves_little(self):
        model = build(ModelSpec(d_model=32, n_heads=2), d_vocab=6, n_ctx=9, seed=0)
        result = moved(attribute_edges(model, lookup_pairs("move_repeat")))
        assert abs(result.mean("prompt")).max() < 0.2

    def test_a_divergence_from_the_clean_run_has_no_slope_there(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        result = attribute_edges(model, pairs, metrics=(KL,))
        assert abs(moved(result)).max() < 1e-12
        assert abs(moved(result, "denoising")).max() > 1e-3


class TestModelsAndMemory:
    def test_chunks_change_nothing(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs(n=5)
        whole, cut = (attribute_edges(model, pairs, max_bytes=size) for size in (2**28, 700_000))
        assert np.allclose(whole.value, cut.value, atol=1e-12)

    def test_too_small_a_budget_is_refused(self):
        with pytest.raises(InputError, match="max_bytes leaves"):
            attribute_edges(foreign_model(), random_pairs(), max_bytes=10_000)

    def test_frozen_weights_and_a_surrounding_no_grad_change_nothing(self):
        model, pairs = foreign_model(), random_pairs()
        expected = attribute_edges(model, pairs)
        for parameter in model.parameters():
            assert parameter.grad is None
            parameter.requires_grad_(False)
        with torch.no_grad():
            assert attribute_edges(model, pairs).equals(expected)
        assert not any(point.fwd_hooks for point in model.hook_dict.values())

    def test_hooks_on_the_model_stay_and_act(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        model.add_hook("blocks.0.hook_mlp_out", lambda x, hook: 0 * x)
        result = moved(attribute_edges(model, pairs))
        assert (result.sel(edge=result.writer == "L0 MLP") == 0).all()
        assert (result.sel(edge=result.reader == "L0 MLP") == 0).all()
        assert len(model.hook_dict["blocks.0.hook_mlp_out"].fwd_hooks) == 1

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ({"original_architecture": "Olmo2ForCausalLM"}, "original_architecture is Olmo2ForCausalLM"),
            ({"positional_embedding_type": "shortformer"}, "positional_embedding_type is shortformer"),
        ],
    )
    def test_models_without_edges_of_their_own_are_refused(self, config, words):
        with pytest.raises(InputError, match=words):
            attribute_edges(foreign_model(**config), random_pairs())

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"metrics": (ACCURACY,)}, "metric accuracy has no gradient; take logit_diff"),
            ({"metrics": (LOGIT_DIFF, ACCURACY)}, "metric accuracy has no gradient"),
            ({"metrics": ()}, "metrics must name at least one"),
            ({"directions": ("sideways",)}, "noising, denoising; got 'sideways'"),
            ({"chosen": []}, "chosen must name at least one edge, each once; got 0"),
            ({"chosen": [Edge(writer=INPUT)] * 2}, "each once; got 2"),
            ({"chosen": [Edge(writer=Site(kind="z", layer=5, head=0))]}, "the model has no edge L5H0 → logits"),
        ],
    )
    @pytest.mark.usefixtures("as_installed")
    def test_wrong_arguments_are_refused(self, arguments, words):
        with pytest.raises(InputError, match=words):
            attribute_edges(foreign_model(), random_pairs(), **arguments)

    def test_a_gradient_that_is_nan_is_refused(self):
        root = Metric(name="root", unit="", function=lambda x, answer, foil: (x.softmax(-1)[..., 0] * 0).sqrt())
        with pytest.raises(InputError, match="the gradient of metric root is NaN"):
            attribute_edges(foreign_model(), random_pairs(), metrics=(root,))
