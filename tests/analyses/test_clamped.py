import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.interventions.clamping import make_clamping
from mnemoscope.models.building import detached_parameters
from mnemoscope.training.learner import Learner
from mnemoscope.training.loop import train
from tests.support import seeded
from tests.training.test_clamped_training import TEXTS, spec_of


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> ms.Run:
    return train(spec_of(), tmp_path_factory.mktemp("clamped") / "run")


@pytest.mark.parametrize("step", [0, 8, 12, 24])
def test_a_clamped_model_computes_what_training_computed(run, step):
    batch = run.spec.task.sample(40, split="train", generator=seeded())
    free, clamped = run.model(step), ms.analyses.with_clamps(run).model(step)
    learner = Learner(run.spec.model, run.spec.recipe, [detached_parameters(free)], [{}])
    held = make_clamping(run.spec).held(step, lambda: [batch])
    expected = learner.evaluate(batch.inputs[None], torch.arange(9), held)[0]
    torch.testing.assert_close(clamped(batch.inputs), expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(
        free(batch.inputs), learner.evaluate(batch.inputs[None], torch.arange(9))[0], atol=1e-9, rtol=0
    )
    assert not torch.allclose(clamped(batch.inputs), free(batch.inputs))


def test_analyses_take_the_clamped_model(tmp_path):
    spec = spec_of(texts=["L1H0=zero", "logits=ideal copy"])
    clamped = ms.analyses.with_clamps(train(spec, tmp_path / "run"))
    batch = spec.task.sample(40, split="test", generator=seeded())
    removed = ms.Zero(site=ms.Site(kind="z", layer=1, head=0))
    assert torch.equal(ms.run_with(clamped, batch, [removed]), ms.run_with(clamped, batch, []))
    skills = spec.task.skills(batch)
    lost = ms.ablate(clamped, batch, skills=skills, reference=batch, kinds=["zero"]).log_prob.sel(kind="zero")
    log_probs = clamped.model()(batch.inputs).detach().log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    for skill, where in skills.items():
        assert float(lost.sel(skill=skill, component="L1H0")) == pytest.approx(float(log_probs[where].mean()))
        assert float(lost.sel(skill=skill, component="L0H0")) != pytest.approx(float(log_probs[where].mean()))


def test_a_clamp_reads_what_an_intervention_leaves(tmp_path):
    spec = spec_of(texts=["logits=ideal copy"])
    model = ms.analyses.with_clamps(train(spec, tmp_path / "run")).model()
    batch = spec.task.sample(6, split="test", generator=seeded())
    there = ms.Site(kind="pattern", layer=1, head=0)
    for _ in range(2):
        attending = ms.SetPattern(site=there, mechanism=ms.core.patterns.identity())
        expected = 3 * torch.nn.functional.one_hot(batch.inputs, 6).double()  # `copied`, of each place's own token
        torch.testing.assert_close(ms.run_with(model, batch, [attending]), expected)
        pattern = model.run_with_cache(batch.inputs)[1]["blocks.1.attn.hook_pattern"][:, 0]
        torch.testing.assert_close(ms.run_with(model, batch, []), pattern @ expected)


def test_the_label_says_so_and_the_trajectory_stays_that_of_the_free_model(run):
    clamped = ms.analyses.with_clamps(run)
    assert clamped.label == f"{run.label}-clamped"
    assert len(clamped.spec.recipe.clamps) == len(TEXTS)
    with pytest.raises(InputError, match="is of models without clamps; measure the run as it is"):
        clamped.write_trajectory(run.metrics())


def test_a_run_without_clamps_has_none_to_put_on(tmp_path):
    free = train(spec_of(texts=[]), tmp_path / "run")
    with pytest.raises(InputError, match="has no clamps; look at the run as it is"):
        ms.analyses.with_clamps(free)
