"""What `patch` returns, what `effects` make of it, and circuits that are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.patching import MIN_DIFFERENCE, effects, patch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import ACCURACY, KL, LOG_PROB, LOGIT_DIFF, METRICS, PROB, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import foreign_model, global_generators_untouched, random_model, seeded

TASK = PermutationLookup(split_seed=0)


def lookup_pairs(group="repeat", *, kind="exchange_answer", n=8):
    task = PermutationLookup(split_seed=0, repeat_ratio=float(group == "repeat"))
    return PromptPairs.from_task(task, task.sample(n, split="test", generator=seeded(1)), kind=kind).read_last()


class TestPatch:
    def test_is_labelled(self, tmp_path):
        pairs = lookup_pairs(n=3)
        with global_generators_untouched():
            result = patch(random_model(), pairs, kind="z", over=("head", "layer", "pos"), metrics=[PROB, KL])
        assert result.value.dims == ("direction", "metric", "head", "layer", "pos", "prompt")
        assert dict(result.sizes) == {"direction": 2, "metric": 2, "head": 2, "layer": 1, "pos": 9, "prompt": 3}
        assert result.clean.dims == result.corrupted.dims == ("metric", "prompt")
        assert result.unit.values.tolist() == ["probability", "nats"]
        assert result.higher_is.values.tolist() == ["better", "worse"]
        assert result.attrs["pairs"] == "exchange_answer"
        assert result.attrs["n"] == 3
        assert result.attrs["method"] == "stream"
        result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
        assert xr.load_dataset(tmp_path / "result.nc").identical(result)

    def test_unpatched_values_are_those_of_the_model(self):
        model, pairs = random_model(), lookup_pairs(n=5)
        result = patch(model, pairs, kind="z", over=("layer",), metrics=[LOG_PROB, LOGIT_DIFF])
        with torch.no_grad():
            clean, corrupted = (model(batch.inputs)[:, -1] for batch in (pairs.clean, pairs.corrupted))
        answer, foil = pairs.answer[:, -1:], pairs.foil[:, -1:]
        expected = clean.log_softmax(-1).gather(-1, answer)[:, 0]
        assert np.allclose(result.clean.sel(metric="log_prob"), expected, atol=1e-5)
        expected = (corrupted.gather(-1, answer) - corrupted.gather(-1, foil))[:, 0]
        assert np.allclose(result.corrupted.sel(metric="logit_diff"), expected, atol=1e-5)

    def test_the_value_of_a_prompt_is_the_mean_over_its_scored_positions(self):
        model, pairs = random_model(), lookup_pairs(n=2)
        whole, (first, last) = torch.zeros(2, 9, dtype=torch.bool), torch.zeros(2, 2, 9, dtype=torch.bool)
        first[:, 4], last[:, 8], whole[:, [4, 8]] = True, True, True
        values = [
            patch(model, pairs.read_at(mask), kind="resid_pre", over=("layer", "pos")).value
            for mask in (whole, first, last)
        ]
        assert abs(values[0] - (values[1] + values[2]) / 2).max() < 1e-6

    def test_only_some_cells(self):
        model, pairs = random_model(n_layers=2), lookup_pairs(n=2)
        whole = patch(model, pairs, kind="z", over=("layer", "pos"))
        some = patch(model, pairs, kind="z", over=("layer", "pos"), only={"layer": [1], "pos": [8, 3]})
        assert abs(some.value - whole.value.sel(layer=[1], pos=[8, 3])).max() < 1e-6

    def test_metrics_of_the_user(self):
        def margin(logits, answer, foil):
            best = logits.topk(2).values
            return best[..., 0] - best[..., 1]

        mine = Metric(name="margin", unit="logits", function=margin)
        result = patch(random_model(), lookup_pairs(), kind="mlp_out", over=("layer",), metrics=[mine])
        assert (result.value >= 0).all()

    def test_metrics_that_measure_no_prediction_are_refused(self):
        raw = Metric(name="raw", unit="logits", function=lambda logits, answer, foil: logits[..., 1])
        with pytest.raises(InputError, match="metric raw moves when a constant is added"):
            patch(random_model(), lookup_pairs(), kind="z", over=("layer",), metrics=[raw])

    def test_a_metric_that_becomes_nan_is_refused(self):
        broken = Metric(name="broken", unit="", function=lambda logits, answer, foil: _root(logits, answer))
        with pytest.raises(InputError, match="metric broken is NaN"):
            patch(random_model(), lookup_pairs(), kind="z", over=("layer",), metrics=[broken])

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"metrics": []}, "metrics must name at least one, each once; got none"),
            ({"metrics": [PROB, PROB]}, "each once; got prob, prob"),
            ({"directions": ()}, "directions must name at least one"),
            ({"directions": ("sideways",)}, "noising, denoising; got 'sideways'"),
            ({"method": "fast"}, "method must be one of: auto, stream, hooks"),
        ],
    )
    @pytest.mark.usefixtures("as_installed")
    def test_wrong_arguments_are_refused(self, arguments, words):
        with pytest.raises(InputError, match=words):
            patch(random_model(), lookup_pairs(), kind="z", over=("layer",), **arguments)

    def test_targets_that_are_not_scored_may_be_anything(self):
        pairs = lookup_pairs()
        clean, corrupted = (
            replace(batch, targets=torch.where(batch.scored, batch.targets, -100))
            for batch in (pairs.clean, pairs.corrupted)
        )
        other = PromptPairs(clean=clean, corrupted=corrupted, name=pairs.name)
        results = [patch(random_model(), each, kind="z", over=("layer",), metrics=METRICS) for each in (pairs, other)]
        assert results[0].identical(results[1])

    def test_answers_that_the_model_cannot_give_are_refused(self):
        with pytest.raises(InputError, match="has 3 outputs and the batch has the target 5; take a model with more"):
            patch(foreign_model(d_vocab_out=3), lookup_pairs(), kind="z", over=("layer",))

    def test_prompts_that_do_not_fit_are_refused(self):
        with pytest.raises(InputError, match="reads 7 tokens and the batch has 9"):
            patch(foreign_model(n_ctx=7), lookup_pairs(), kind="z", over=("layer",))
        with pytest.raises(InputError, match="has 4 tokens and the batch uses token"):
            patch(foreign_model(d_vocab=4), lookup_pairs(), kind="z", over=("layer",))


def _root(logits, answer):
    """NaN for about half of all predictions; never on the positions where the check of the metrics looks."""
    p = logits.softmax(-1).gather(-1, answer[..., None])[..., 0]
    return p if logits.dtype == torch.double else (p - p.median()).sqrt()


def measured(clean, corrupted, noised, denoised):
    """A result of `patch` with one metric and one cell."""
    prompts = ("metric", "prompt")
    value = np.array([noised, denoised], dtype=float)[:, None, None]
    return xr.Dataset(
        {
            "value": (("direction", "metric", "layer", "prompt"), value),
            "clean": (prompts, np.array([clean], dtype=float)),
            "corrupted": (prompts, np.array([corrupted], dtype=float)),
        },
        coords={"direction": ["noising", "denoising"], "metric": ["mine"], "layer": [0]},
    )


class TestEffects:
    def test_by_hand(self):
        result = effects(measured([4, 6], [0, 2], noised=[3, 2], denoised=[1, 5]))
        cell = result.isel(metric=0, layer=0)
        assert cell.effect.values.tolist() == [[0.25, 1.0], [0.25, 0.75]]
        assert cell.ratio.values.tolist() == [0.625, 0.5]
        assert cell.difference.values.tolist() == [4, 4]
        assert result.effect.dims == ("direction", "metric", "layer", "prompt")
        assert result.attrs["noise"] == ""

    def test_the_ratio_is_that_of_the_means(self):
        result = effects(measured([6, 10], [0, 0], noised=[0, 10], denoised=[6, 0])).isel(metric=0, layer=0)
        assert result.effect.values.tolist() == [[1, 0], [1, 0]]
        assert result.ratio.values.tolist() == pytest.approx([0.375, 0.375])

    def test_one_prompt_needs_no_error(self):
        result = effects(measured([1], [0], noised=[0], denoised=[0])).isel(metric=0, layer=0)
        assert result.ratio.values.tolist() == [1, 0]
        assert np.isnan(result.error)

    def test_a_prompt_without_a_difference_has_no_effect_of_its_own(self):
        result = effects(measured([1] * 4, [0, 0, 0, 1], noised=[0] * 4, denoised=[0] * 4)).isel(metric=0, layer=0)
        assert result.effect.sel(direction="noising").isnull().values.tolist() == [False, False, False, True]
        assert result.ratio.sel(direction="noising") == pytest.approx(4 / 3)

    def test_a_difference_that_is_noise_is_refused(self):
        with pytest.raises(InputError, match=r"no metric tells clean.*mine: mean difference 0\.5, not above 1"):
            effects(measured([2, 1, 0, 1], [0, 1, 1, 0], noised=[0] * 4, denoised=[0] * 4))
        half = MIN_DIFFERENCE / 2
        with pytest.raises(InputError, match=r"mean difference 0\.0005, not above 0\.001"):
            effects(measured([half], [0], noised=[0], denoised=[0]))
        with pytest.raises(InputError, match="mean difference nan"):
            effects(measured([-np.inf, 1], [-np.inf, 0], noised=[0, 0], denoised=[0, 0]))

    def test_a_difference_that_most_prompts_do_not_show_is_refused_however_many_there_are(self):
        clean = [1.0] * 45 + [-1.0] * 25 + [0.0] * 30  # mean 0.2 with a standard error of 0.08, deviation 0.8
        with pytest.raises(InputError, match=r"mean difference 0\.2, not above 0\.8"):
            effects(measured(clean, [0] * 100, noised=[0] * 100, denoised=[0] * 100))

    def test_one_metric_that_is_noise_is_named_and_left_out(self):
        parts = [measured([1], [0], [0], [0]), measured([0], [0], [0], [0]).assign_coords(metric=["flat"])]
        result = effects(xr.concat(parts, "metric"))
        assert result.attrs["noise"] == "flat: mean difference 0, not above 0.001"
        assert result.ratio.sel(metric="flat").isnull().all()
        assert result.effect.sel(metric="flat").isnull().all()
        assert result.ratio.sel(metric="mine", direction="noising") == 1


class TestKnownCircuits:
    def test_elimination_reads_the_y_that_was_exchanged(self):
        pairs = lookup_pairs("fresh")
        result = effects(patch(elimination_only(), pairs, kind="resid_pre", over=("layer", "pos"), metrics=METRICS))
        changed = pairs.clean.inputs != pairs.corrupted.inputs
        assert (changed.sum(1) == 1).all()
        effect = result.effect.sel(layer=0).transpose("direction", "metric", "prompt", "pos").values
        assert np.allclose(effect, np.broadcast_to(changed.numpy(), effect.shape), atol=1e-5)

    def test_recall_is_carried_by_its_head_at_the_last_position(self):
        pairs, metrics = lookup_pairs("repeat"), [LOGIT_DIFF, LOG_PROB, PROB, ACCURACY]
        result = patch(dissociated(), pairs, kind="z", over=("layer", "pos", "head"), metrics=metrics)
        effect = effects(result).effect.sel(layer=0)
        assert abs(effect.sel(pos=slice(0, 7))).max() < 1e-9
        last = effect.sel(pos=8)
        for metric in ("prob", "accuracy"):
            assert np.allclose(last.sel(metric=metric, head=1), 1, atol=1e-5)
            assert np.allclose(last.sel(metric=metric, head=0), 0, atol=1e-5)
        # the elimination head speaks against the recalled value, which it counts as used: without it recall is surer
        assert abs(last.sel(metric="log_prob", head=0, direction="noising")).max() < 1e-6
        logit_diff = last.sel(metric="logit_diff")
        assert (logit_diff.sel(head=0) < -0.2).all()
        assert np.allclose(logit_diff.sum("head"), 1, atol=1e-5)

    def test_moving_the_repeat_leaves_elimination_alone(self):
        pairs = lookup_pairs("repeat", kind="move_repeat")
        result = effects(patch(dissociated(), pairs, kind="z", over=("layer", "head"), metrics=[LOGIT_DIFF]))
        assert abs(result.effect.sel(head=0)).max() < 1e-5

    @pytest.mark.parametrize("group", ["fresh", "repeat"])
    def test_an_untrained_model_is_not_read_as_anything(self, group):
        for seed in range(4):
            model = build(ModelSpec(d_model=32, n_heads=2), d_vocab=6, n_ctx=9, seed=seed)
            result = patch(model, lookup_pairs(group, n=128), kind="z", over=("layer", "head"), metrics=[LOGIT_DIFF])
            with pytest.raises(InputError, match="no metric tells clean from corrupted prompts"):
                effects(result)


def test_what_a_head_adds_is_patched_as_its_z():
    pairs, over = lookup_pairs(), ("layer", "head")
    result, z = (patch(random_model(), pairs, kind=kind, over=over) for kind in ("result", "z"))
    assert result.value.equals(z.value)
    assert result.attrs["intervention"].startswith("result of one run")
