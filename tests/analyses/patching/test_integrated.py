"""Edge attribution with integrated gradients: the published scores, completeness, and what it sees that EAP misses."""

import numpy as np
import pytest

from mnemoscope.analyses.estimates import STEPS, attribute_edges, integrate_edges
from mnemoscope.analyses.patching import patch_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL
from mnemoscope.core.site import Edge, Site
from mnemoscope.interventions.graph import model_edges
from mnemoscope.systems.tiny_recall.constructed import two_layer_recall
from tests.analyses.patching.test_edge_attribution import DOUBLE, MODELS, linear_model, lookup_pairs, moved
from tests.published_eap import blended, scores
from tests.split_hooks import random_pairs
from tests.support import foreign_model, reads_back


class TestPublished:
    @pytest.mark.parametrize("name", ["LN", "none", "rotary", "parallel"])
    def test_moving_the_inputs(self, name):
        model, pairs = foreign_model(**DOUBLE, **MODELS[name]), random_pairs()
        runs = [[blended(model, pairs, "hook_embed", k / STEPS)] for k in range(STEPS)]
        expected = scores(model, pairs, model_edges(model), runs)
        found = -moved(integrate_edges(model, pairs)).isel(metric=0).mean("prompt")
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))

    @pytest.mark.parametrize("config", [{}, {"attn_only": True}], ids=["MLPs", "attention only"])
    @pytest.mark.thorough
    def test_moving_one_activation_after_the_other(self, config):
        model, pairs, steps = foreign_model(**DOUBLE, **config), random_pairs(), 3
        ends = ["attn.hook_z"] + ([] if model.cfg.attn_only else ["hook_mlp_out"])
        moving = ["hook_embed", *(f"blocks.{layer}.{end}" for layer in (0, 1) for end in ends)]
        runs = [[blended(model, pairs, name, k / steps)] for name in moving for k in range(1, steps + 1)]
        expected = scores(model, pairs, model_edges(model), runs)
        result = integrate_edges(model, pairs, steps=steps, rule="right", along="activations")
        found = -moved(result).isel(metric=0).mean("prompt")
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


class TestPath:
    @pytest.mark.thorough
    def test_what_leaves_the_input_adds_up_to_the_whole_difference(self):
        model, pairs = foreign_model(**DOUBLE, d_model=32), random_pairs()
        for steps, error in ((10, 0.5), (40, 5e-3)):
            result = integrate_edges(model, pairs, steps=steps, rule="middle", directions=("noising",))
            total = moved(result).sel(edge=result.writer == "input").sum("edge")
            missed = (result.corrupted - result.clean) - total
            assert abs(missed).max() < error
            assert np.allclose(result.unexplained.sel(direction="noising"), missed, atol=1e-12)

    def test_what_is_unexplained_is_told_of_all_edges_only(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        edge = Edge(writer=Site(kind="resid_pre", layer=0))
        assert "unexplained" not in integrate_edges(model, pairs, chosen=[edge])
        assert "unexplained" not in integrate_edges(model, pairs, along="activations", steps=1)
        together, apart = (
            integrate_edges(model, pairs, embeddings=embeddings).unexplained for embeddings in ("together", "apart")
        )
        assert np.allclose(together, apart, atol=1e-12)
        assert np.allclose(together.sel(direction="noising"), -together.sel(direction="denoising"), atol=1e-12)

    def test_one_step_at_an_end_is_the_gradient_there(self):
        model, pairs = foreign_model(**DOUBLE), random_pairs()
        plain = attribute_edges(model, pairs)
        for rule, direction in (("right", "noising"), ("left", "denoising")):
            ends = integrate_edges(model, pairs, steps=1, rule=rule, directions=(direction,))
            assert np.allclose(moved(ends, direction), moved(plain, direction), atol=1e-12)

    def test_both_directions_get_one_estimate(self):
        result = integrate_edges(foreign_model(**DOUBLE), random_pairs())
        assert np.allclose(moved(result), -moved(result, "denoising"), atol=1e-12)

    def test_moved_activations_start_from_either_run(self):
        result = integrate_edges(foreign_model(**DOUBLE), random_pairs(), along="activations")
        assert abs(moved(result) + moved(result, "denoising")).max() > 1e-3

    @pytest.mark.parametrize("rule", ["left", "right", "middle"])
    def test_a_linear_model_is_estimated_exactly(self, rule):
        model, pairs = linear_model(), random_pairs()
        assert abs(integrate_edges(model, pairs, rule=rule).value - patch_edges(model, pairs).value).max() < 1e-9

    def test_a_divergence_is_seen(self):
        result = integrate_edges(foreign_model(**DOUBLE), random_pairs(), metrics=(KL,))
        assert abs(moved(result)).max() > 1e-3


class TestKnownCircuits:
    def test_a_saturated_head_is_seen_through_its_queries_with_enough_steps(self):
        model, pairs = two_layer_recall(), lookup_pairs("move_repeat")
        edge = Edge(writer=Site(kind="resid_pre", layer=0), reader=Site(kind="z", layer=1, head=1), through="q")
        exact = moved(patch_edges(model, pairs, chosen=[edge])).mean().item()
        seen = {
            steps: moved(integrate_edges(model, pairs, chosen=[edge], steps=steps, rule="middle")).mean().item() / exact
            for steps in (STEPS, 100)
        }
        assert abs(seen[STEPS] - 1) > 0.5  # few points hit the steep stretch too often, or miss it
        assert seen[100] == pytest.approx(1, abs=0.01)


def test_what_was_done_is_said(tmp_path):
    result = integrate_edges(foreign_model(), random_pairs(), steps=3, rule="middle", along="activations")
    assert (result.attrs["gradient"], result.attrs["steps"]) == ("averaged along activations", 3)
    assert result.attrs["rule"] == "middle"
    assert reads_back(result, tmp_path / "result.nc")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"rule": "trapezoid"}, "rule must be one of: left, right, middle"),
        ({"along": "weights"}, "along must be one of: inputs, activations"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        integrate_edges(foreign_model(), random_pairs(), **arguments)
