"""Analyses keep their prompts where asked to, change nothing else, and can be audited."""

import numpy as np
import pytest
import torch
import xarray as xr

import mnemoscope as ms
from mnemoscope.analyses.ablation import BY_PROMPT
from mnemoscope.systems.tiny_recall.constructed import dissociated
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model


@pytest.fixture(scope="module")
def task():
    return PermutationLookup(repeat_ratio=0.3).for_seed(0)


@pytest.fixture(scope="module")
def batch(task):
    return task.monitor(40, split="test", generator=ms.generator(0, "prompts"))


def without_prompts(result):
    kept = [name for name in result.data_vars if "prompt" not in result[name].dims]
    return result[kept].drop_vars(["prompt", "cluster"], errors="ignore")


def test_an_ablation_keeps_its_prompts_and_is_audited(task, batch):
    common = {"skills": task.skills(batch), "reference": batch, "kinds": ["mean"]}
    plain = ms.ablate(dissociated(), batch, **common)
    kept = ms.ablate(dissociated(), batch, per_prompt=True, **common)
    assert without_prompts(kept).identical(plain)
    assert kept[f"accuracy{BY_PROMPT}"].dims == ("kind", "component", "skill", "prompt")
    xr.testing.assert_allclose(kept.accuracy_by_prompt.mean("prompt"), plain.accuracy)  # one position a prompt
    xr.testing.assert_allclose(kept.clean_log_prob_by_prompt.mean("prompt"), plain.clean_log_prob)
    audit = ms.audit(kept)
    recall = audit.sel(kind="mean", skill="recall")
    assert recall.component.values[recall.confirmed.values].tolist() == ["L0H1", "L0 MLP"]
    assert audit.attrs["measure"] == "accuracy"
    assert ms.audit(kept, measure="log_prob").attrs["measure"] == "log_prob"
    with pytest.raises(ms.InputError, match=r"measure with per_prompt=True"):
        ms.audit(plain)


def test_a_rise_of_the_loss_is_an_effect_too():
    kept = xr.Dataset(
        {
            "loss_by_prompt": (("component", "prompt"), np.full((2, 20), 3.0)),
            "clean_loss_by_prompt": ("prompt", np.arange(20) / 20),
        }
    )
    assert (ms.audit(kept).effect > 0).all()


def test_scores_of_heads_keep_their_prompts_and_are_audited():
    model = random_model(n_heads=4, n_ctx=12)
    batch = ms.analyses.repeated_tokens(model, n=24, length=3)
    plain, kept = ms.analyses.head_scores(model, batch), ms.analyses.head_scores(model, batch, per_prompt=True)
    assert without_prompts(kept).identical(plain)
    xr.testing.assert_allclose(kept.score_by_prompt.mean("prompt"), plain.score)
    xr.testing.assert_allclose(kept.even_by_prompt.mean("prompt"), plain.even)
    assert ms.audit(kept, null="heads").p.dims == ("score_name", "layer", "head")
    untrained = ms.analyses.head_scores(random_model(n_heads=4, n_ctx=12, seed=1), batch, per_prompt=True)
    difference = ms.audit(kept, against=untrained)
    together = kept.score_by_prompt - untrained.score_by_prompt
    whole = ms.audit(kept, against=untrained, clusters=range(24), held_out=0.0).effect
    xr.testing.assert_allclose(whole.drop_attrs(), together.mean("prompt").drop_attrs())
    assert difference.attrs["null"].startswith("effects are symmetric")


@pytest.fixture(scope="module")
def probed(task, batch):
    fit = task.sample(200, split="train", generator=ms.generator(0, "fit"))
    site = ms.Site(kind="resid_post", layer=0, pos=-1)
    options = {"sites": [site], "test": batch, "n_shuffles": 1}
    model = dissociated()
    sides = (
        ms.analyses.with_latent(side, "noise", torch.randn(len(side), generator=ms.generator(seed, "n")))
        for seed, side in enumerate((fit, batch))
    )
    noisy, other = sides
    return (
        ms.probe(model, fit, "is_repeat", **options),
        ms.probe(model, fit, "is_repeat", per_prompt=True, **options),
        ms.probe(model, noisy, "noise", per_prompt=True, **{**options, "test": other}),
    )


def test_probes_keep_their_prompts_and_are_audited_against_dealt_labels(probed):
    plain, kept, noise = probed
    assert without_prompts(kept).identical(plain)
    right = (kept.prediction == kept.label).mean("prompt")
    xr.testing.assert_allclose(right.rename("accuracy").drop_attrs(), plain.accuracy.drop_attrs())
    audit = ms.audit(kept)
    assert audit.confirmed.all()
    assert audit.attrs["null"].startswith("what is read has nothing to do with labels that are dealt anew to")
    assert not ms.audit(noise).found.any()
    assert (ms.audit(kept, against=kept).p == 1).all()


def test_probes_with_a_wrong_null_or_without_sides_are_refused(probed, task, batch):
    with pytest.raises(ms.InputError, match="null must be labels for what probes read; got 'signs'"):
        ms.audit(probed[1], null="signs")
    with pytest.raises(ms.InputError, match="labels are dealt to clusters"):
        ms.audit(probed[1], clusters=np.arange(len(batch)) % 7)
    site = ms.Site(kind="resid_post", layer=0, pos=-1)
    with pytest.raises(ms.InputError, match="per_prompt needs test"):
        ms.probe(dissociated(), batch, "is_repeat", sites=[site], per_prompt=True)


def test_a_task_names_the_clusters_of_its_prompts():
    task = ms.preset("facts").task.for_seed(0)
    batch = task.sample(50, split="test", generator=ms.generator(0, "facts"))
    assert task.clusters == "subject"
    assert torch.equal(batch.clusters, batch.latents["subject"].unique(return_inverse=True)[1])


def test_equal_prompts_are_one_cluster(batch):
    twice = batch.select(torch.arange(6).repeat(2))
    assert twice.clusters.tolist() == twice.select(slice(6)).clusters.tolist() * 2
