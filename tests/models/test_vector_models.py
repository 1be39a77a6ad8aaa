"""Models that read vectors: HookedTransformers with a read-in in the place of the token embedding."""

from dataclasses import replace

import pytest
import torch

from mnemoscope import InputError, PromptPairs, Site, Zero, ablate, evaluate, patch, patch_edges, predict, run_with
from mnemoscope.analyses.attention_replacement.replacement import replace_heads
from mnemoscope.core.metrics import ERROR_DIFF, LOGIT_DIFF, VECTOR_METRICS
from mnemoscope.core.patterns import uniform
from mnemoscope.core.presets import preset
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters
from mnemoscope.models.checkpoint import load_checkpoint, save_checkpoint
from mnemoscope.systems.retrieval.tasks import Retrieval
from mnemoscope.training.loop import train, train_together
from tests.support import logits_of, perturbed, seeded

TASK = Retrieval(n_chains=2, n_steps=2, d_symbol=2)
SPEC = RunSpec(
    task=TASK,
    model=ModelSpec(d_model=8, n_heads=2, n_layers=2, act_fn="gelu", positions=False),
    recipe=Recipe(n_steps=20, batch_size=16, metrics_every=10, checkpoint_steps=(5,)),
    seed=0,
)


def model(**changes):
    return perturbed(build_untrained(replace(SPEC, model=replace(SPEC.model, **changes))), spec=SPEC.model).eval()


def batch(n=12, seed=0):
    return TASK.sample(n, split="test", generator=seeded(seed))


def pairs(n=12):
    return PromptPairs.from_task(TASK, batch(n), kind="exchange")


def test_the_output_is_that_of_the_formula():
    made = model(n_layers=1)
    inputs = batch().inputs
    embedded = inputs @ made.embed.W_E
    _, cache = made.run_with_cache(inputs)
    torch.testing.assert_close(cache["hook_embed"], embedded)
    final = made.ln_final(cache["blocks.0.hook_resid_post"])
    torch.testing.assert_close(made(inputs), final @ made.unembed.W_U + made.unembed.b_U)
    assert made(inputs).shape == (12, TASK.n_ctx, TASK.d_output)


def test_every_hook_works_the_read_in_too():
    made, inputs = model(), batch()
    clean = made(inputs.inputs)
    for site in (Site(kind="embed"), Site(kind="z", layer=1, head=0), Site(kind="mlp_out", layer=0)):
        assert not torch.allclose(run_with(made, inputs, [Zero(site=site)]), clean), site
    assert torch.equal(run_with(made, inputs, []), clean)


@pytest.mark.parametrize("changes", [{}, {"mlp": False}, {"d_head": 3}, {"positions": True}, {"normalization": "none"}])
def test_the_training_forward_gives_the_same(changes):
    made, inputs = model(**changes), batch()
    positions = inputs.scored.any(0).nonzero()[:, 0]
    spec = replace(SPEC.model, **changes)
    for fused in (True, False):
        given = logits_of(detached_parameters(made), spec, inputs.inputs, positions, fused=fused)
        torch.testing.assert_close(given, made(inputs.inputs)[:, positions], atol=1e-5, rtol=1e-5)


def test_a_checkpoint_holds_the_read_in(tmp_path):
    made = model()
    save_checkpoint(made, tmp_path / "a.safetensors")
    again = load_checkpoint(tmp_path / "a.safetensors")
    assert torch.equal(again(batch().inputs), made(batch().inputs))


def test_training_lowers_the_loss_and_reports_its_parts(tmp_path):
    spec = replace(SPEC, recipe=replace(SPEC.recipe, n_steps=60, learning_rate=1e-2))
    run = train(spec, tmp_path / "one")
    metrics = run.metrics()
    assert metrics.attrs["loss_unit"] == "squared error"
    assert float(metrics.test_loss[-1]) < float(metrics.test_loss[0])
    parts = [float(metrics[f"test_loss_{part}"][-1]) for part in ("x1", "x2")]
    assert sum(parts) / 2 == pytest.approx(float(metrics.test_loss[-1]), rel=1e-5)
    found = evaluate(run.model(), TASK, batch(2000))
    assert float(found.loss.sel(part="all").mean()) == pytest.approx(float(metrics.test_loss[-1]), abs=0.15)
    assert found.floor.sel(reference="chain").values.max() == 0


def test_seeds_train_together_as_they_do_alone(tmp_path):
    specs = [replace(SPEC, seed=seed) for seed in (0, 1)]
    both = train_together(specs, [tmp_path / "0", tmp_path / "1"])
    alone = train(specs[1], tmp_path / "alone")
    for name, value in alone.model().state_dict().items():
        if name.endswith("b_K"):
            continue  # its gradient is rounding alone, of which Adam makes whole steps
        torch.testing.assert_close(both[1].model().state_dict()[name], value, atol=1e-5, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("kind", ["resid_pre", "z", "mlp_out", "q", "v", "pattern", "embed"])
def test_patching_continues_from_the_stream_as_through_hooks(kind):
    over = {"pattern": ("layer", "head"), "embed": ("pos",)}.get(kind, ("layer", "pos"))
    found = [
        patch(model(), pairs(), kind=kind, over=over, metrics=VECTOR_METRICS, method=method).value
        for method in ("stream", "hooks")
    ]
    torch.testing.assert_close(*(torch.from_numpy(values.values) for values in found), atol=1e-5, rtol=1e-5)
    assert float(found[0].std()) > 0


def test_the_difference_of_errors_is_what_is_read_unless_another_metric_is_named():
    both = pairs()
    found = patch(model(), both, kind="resid_pre", over=("layer",), only={"layer": [0]})
    assert found.metric.values.tolist() == [ERROR_DIFF.name]
    outputs = [model()(side.inputs) for side in (both.clean, both.corrupted)]
    for name, given in zip(("clean", "corrupted"), outputs, strict=True):
        away, near = ((given - side.targets).square().mean(-1) for side in (both.corrupted, both.clean))
        expected = (away - near)[both.scored].view(len(both), -1).mean(1)
        assert found[name].sel(metric="error_diff").values == pytest.approx(expected.detach().numpy(), abs=1e-5)
    swapped = found.value.sel(direction="noising", layer=0, metric="error_diff").values
    assert swapped == pytest.approx(found.corrupted.sel(metric="error_diff").values, abs=1e-5)


def test_a_metric_of_a_part_looks_at_that_part():
    metric = ERROR_DIFF.on("x2", TASK.parts["x2"])
    outputs, answer, foil = (torch.randn(5, 4, generator=seeded(i)) for i in range(3))
    given = metric(outputs, answer, foil, outputs)
    expected = (outputs - foil)[:, 2:].square().mean(-1) - (outputs - answer)[:, 2:].square().mean(-1)
    torch.testing.assert_close(given, expected)
    with pytest.raises(InputError, match="only a metric of vectors"):
        LOGIT_DIFF.on("x2", slice(2))


def test_edges_are_patched_the_fast_way_and_through_hooks_alike():
    found = [patch_edges(model(), pairs(6), method=method).value for method in ("stream", "hooks")]
    torch.testing.assert_close(*(torch.from_numpy(values.values) for values in found), atol=1e-5, rtol=1e-5)


def test_ablation_gives_errors_of_the_parts():
    made, inputs = model(), batch(40)
    found = ablate(made, inputs, skills={"all": inputs.scored}, reference=batch(40, seed=1))
    assert found.skill.values.tolist() == ["all", "x1", "x2"]
    expected = (made(inputs.inputs) - inputs.targets).square()[inputs.scored].mean(0)
    expected = expected.detach()
    clean = [float(expected.mean()), float(expected[:2].mean()), float(expected[2:].mean())]
    assert found.clean_loss.values.tolist() == pytest.approx(clean, rel=1e-5)
    assert (found.loss_error >= 0).all()


def test_attention_is_replaced_and_judged_by_squared_error():
    made, inputs = model(), batch(40)
    found = replace_heads(made, inputs, {(0, 0): uniform()})
    assert found.attrs["loss_unit"] == "squared error"
    assert found.skill.values.tolist() == ["all", "x1", "x2"]
    assert float(found.loss.sel(skill=["x1", "x2"]).mean()) == pytest.approx(float(found.loss.sel(skill="all")))


def test_what_needs_tokens_says_so_and_models_of_the_other_kind_are_refused():
    with pytest.raises(InputError, match=r"is of predicted tokens, and the batch holds vectors"):
        predict(model(), TASK, batch(1))
    tokens = preset("v3").task.for_seed(0)
    with pytest.raises(InputError, match="the batch holds tokens and the model reads vectors"):
        evaluate(model(), tokens, tokens.sample(3, split="test", generator=seeded()))
    with pytest.raises(InputError, match="the batch holds vectors and the model reads tokens"):
        evaluate(build_untrained(preset("v3")), TASK, batch())
    other = Retrieval(n_chains=2, n_steps=2, d_symbol=4)
    with pytest.raises(InputError, match="vectors of width 4 and 4; those of the batch 8 and 8"):
        evaluate(model(), other, other.sample(3, split="test", generator=seeded()))
    with pytest.raises(InputError, match="metric logit_diff is of logits, and the model gives vectors"):
        patch(model(), pairs(), kind="z", over=("layer",), metrics=[LOGIT_DIFF])
    with pytest.raises(InputError, match="evaluated by part"):
        evaluate(model(), TASK, batch(), by="skill")


def test_specifications_written_before_a_field_existed_stay_as_they_are():
    assert "d_head" not in SPEC.to_dict()["model"]
    wide = replace(SPEC, model=replace(SPEC.model, d_head=3))
    assert wide.to_dict()["model"]["d_head"] == 3
    assert RunSpec.from_dict(wide.to_dict()) == wide
    assert RunSpec.from_dict(SPEC.to_dict()) == SPEC
