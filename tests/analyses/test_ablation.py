import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

from mnemoscope.analyses.ablation import ablate, attention_paths
from mnemoscope.analyses.evaluation import evaluate
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Zero
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import run_with
from mnemoscope.systems.tiny_recall.constructed import dissociated
from tests.support import random_model, seeded, small_spec

TASK = small_spec("v3").task
FRESH = small_spec("v1").task


def prompts(n: int = 300, seed: int = 0):
    return TASK.monitor(n, split="test", generator=seeded(seed))


def everything(copies: int = 1):
    """Every mapping in the order x = 1 2 3 4 5, without a repeat: each value is the answer equally often."""
    batch = replace(FRESH, shuffle_x=False).enumerate(split="all")
    return batch.select(batch.weights.nonzero()[:, 0].repeat(copies))


def test_the_hand_set_head_is_needed_for_elimination_and_the_other_is_not(planted):
    batch = everything(20)
    result = ablate(planted, batch, skills=FRESH.skills(batch), reference=everything()).sel(skill="elimination")
    clean = -math.log(1 + 4 * math.exp(-10))
    assert (result.clean_accuracy, result.clean_log_prob) == (1, pytest.approx(clean, abs=1e-6))
    np.testing.assert_allclose(result.log_prob.sel(component="L0H1"), clean, atol=1e-6)
    np.testing.assert_allclose(result.accuracy.sel(component="L0H1"), 1)
    without = result.sel(component="L0H0").log_prob
    np.testing.assert_allclose(without.sel(kind=["zero", "mean"]), -math.log(5), atol=1e-4)  # all answers alike
    # another sequence's unused value: right with probability 1/5, 10 nats short otherwise
    assert float(without.sel(kind="resample")) == pytest.approx(clean - 4 / 5 * 10, abs=0.4)
    assert float(result.accuracy.sel(component="L0H0", kind="resample")) == pytest.approx(1 / 5, abs=0.04)


def test_a_skill_that_no_sequence_tests_is_undefined(planted):
    batch = FRESH.sample(20, split="test", generator=seeded())
    result = ablate(planted, batch, skills=FRESH.skills(batch), reference=batch, kinds=("zero",))
    assert result.sel(skill="recall").to_array().isnull().all()
    assert result.kind.values.tolist() == ["zero"]


def test_clean_skills_are_those_of_the_evaluation():
    model, batch = random_model(), prompts()
    result = ablate(model, batch, skills=TASK.skills(batch), reference=batch, kinds=("mean",))
    expected = evaluate(model, TASK, batch).isel(pos=-1)
    for skill, subgroup in (("elimination", "fresh"), ("recall", "repeat")):
        by_skill, by_group = result.sel(skill=skill), expected.sel(subgroup=subgroup)
        assert float(by_skill.clean_accuracy) == pytest.approx(float(by_group.accuracy))
        assert float(by_skill.clean_log_prob) == pytest.approx(-float(by_group.loss), abs=1e-6)


def test_an_ablated_skill_by_hand():
    model, batch = random_model(), prompts(50)
    result = ablate(model, batch, skills=TASK.skills(batch), reference=batch, kinds=("zero",))
    result = result.sel(kind="zero", component="L0 MLP")
    with torch.no_grad():
        model.blocks[0].mlp.W_out.zero_()
        model.blocks[0].mlp.b_out.zero_()
        answers = model(batch.inputs)[:, -1].log_softmax(-1)
    right = answers.gather(1, batch.targets[:, -1:])[:, 0]
    assert result.log_prob.values.tolist() == pytest.approx([right[:50].mean().item(), right[50:].mean().item()])
    correct = (answers.argmax(1) == batch.targets[:, -1]).double()
    assert result.accuracy.values.tolist() == pytest.approx([correct[:50].mean().item(), correct[50:].mean().item()])


def test_resampling_follows_its_seed():
    model, batch = random_model(), prompts(50)
    skills = TASK.skills(batch)
    first, again, other = (
        ablate(model, batch, skills=skills, reference=batch, kinds=("resample",), seed=seed).log_prob
        for seed in (0, 0, 1)
    )
    assert first.equals(again)
    assert not first.equals(other)


def test_the_error_of_a_drop_is_that_of_the_paired_differences():
    model, batch = random_model(), prompts(50)
    result = ablate(model, batch, skills=TASK.skills(batch), reference=batch, kinds=("zero",)).sel(kind="zero")
    answers = [
        run_with(model, batch, hooks)[:, -1].argmax(1) for hooks in ([], [Zero(site=Site(kind="mlp_out", layer=0))])
    ]
    right = [(answer == batch.targets[:, -1])[:50].double().numpy() for answer in answers]
    expected = scipy.stats.sem(right[0] - right[1])
    assert expected > 0
    assert float(result.accuracy_error.sel(component="L0 MLP", skill="elimination")) == pytest.approx(expected)


def test_targets_are_removed_together(planted):
    batch = everything()
    head, idle = (Site(kind="z", layer=0, head=h) for h in range(2))
    targets = {"both": [head, idle], "idle": [idle], "last only": [Site(kind="z", layer=0, head=0, pos=-1)]}
    result = ablate(planted, batch, skills=FRESH.skills(batch), reference=batch, targets=targets, kinds=("zero",)).sel(
        kind="zero", skill="elimination"
    )
    assert result.accuracy.sel(component="idle") == 1
    assert result.accuracy.sel(component=["both", "last only"]).values == pytest.approx([0.2, 0.2])


def test_attention_paths_of_the_hand_set_head(planted):
    """Without the path from one y the logit of its value is 0, or the others' share is 1/3 instead of 1/4."""
    batch = everything()
    skills, clean = FRESH.skills(batch), -math.log(1 + 4 * math.exp(-10))

    def without(kind, removal):
        targets = attention_paths(planted, 9, kind=kind, queries=[8])
        return ablate(planted, batch, skills=skills, reference=batch, targets=targets, kinds=(removal,))

    lost, spread = without("pattern", "zero"), without("scores", "knockout")
    for result, others in ((lost, 10), (spread, 40 / 3)):
        by_path = result.log_prob.isel(kind=0).sel(skill="elimination")
        needed = -math.log(2 + 3 * math.exp(-others))
        for key in range(9):
            expected = needed if key % 2 else clean
            assert float(by_path.sel(component=f"L0H0 {key}→8")) == pytest.approx(expected, abs=1e-5)
            assert float(by_path.sel(component=f"L0H1 {key}→8")) == pytest.approx(clean, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"kinds": ("remove",)},
            "the kind of an ablation must be one of: .*, knockout; got 'remove'",
        ),
        ({"targets": {}}, "targets must name at least one set of sites"),
        ({"kinds": ("knockout",)}, "Knockout needs a site of kind scores; got L0H0"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_cannot_be_removed_is_refused(planted, change, message):
    batch = everything()
    with pytest.raises(InputError, match=message):
        ablate(planted, batch, skills=FRESH.skills(batch), reference=batch, **change)


def test_a_model_that_is_too_small_is_refused():
    batch = prompts(5)
    with pytest.raises(InputError, match="the model has 5 tokens and the batch uses token 5"):
        ablate(random_model(d_vocab=5), batch, skills=TASK.skills(batch), reference=batch)
    with pytest.raises(InputError, match="the model reads 8 tokens and the batch has 9"):
        ablate(random_model(n_ctx=8), batch, skills=TASK.skills(batch), reference=batch)
    with pytest.raises(InputError, match="the batch holds no sequence"):
        ablate(random_model(), batch.select(slice(0, 0)), skills={}, reference=batch)


def test_within_a_class_the_class_itself_stays_known():
    """Resampling what says whether something repeats disturbs elimination, unless it is drawn from fresh ones."""
    model = dissociated()
    batch = TASK.monitor(400, split="all", generator=seeded())
    given = {"skills": TASK.skills(batch), "reference": batch, "kinds": ("mean", "resample")}
    free, matched = (ablate(model, batch, **given, within=within) for within in (None, "is_repeat"))
    head = {"component": "L0H1", "kind": "resample"}
    assert free.accuracy.sel(**head, skill="elimination") < 0.98
    assert matched.accuracy.sel(**head, skill="elimination") == 1
    for result in (free, matched):
        assert result.accuracy.sel(component="L0H1", kind="mean").values.tolist() == [1, 0]
        assert result.accuracy.sel(**head, skill="recall") < 0.3
    assert (free.attrs["within"], matched.attrs["within"]) == ("all sequences", "is_repeat")
