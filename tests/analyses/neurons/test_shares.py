import numpy as np
import pytest
import torch

from mnemoscope.analyses.neuron_removal import neuron_effects, neuron_shares
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset
from mnemoscope.models.building import build
from mnemoscope.models.constructed import associative_memory
from mnemoscope.systems.tiny_recall.constructed import dissociated
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3, split_seed=0)
SMALL = PermutationLookup(n_values=4, repeat_ratio=0.3, split_seed=0)
MAPPING = (2, 0, 3, 1, 5, 4)


def all_tokens() -> Batch:
    """Every sequence holds every token once, and so does every position of every six sequences."""
    inputs = torch.stack([torch.arange(6).roll(i) for i in range(6)]).repeat(4, 1)
    return Batch(inputs=inputs, targets=torch.tensor(MAPPING)[inputs], scored=torch.ones_like(inputs).bool())


def memory_shares(kind, model=None, **options):
    batch = all_tokens()
    model = associative_memory(MAPPING) if model is None else model
    return neuron_shares(
        model, batch, skills={"lookup": batch.scored}, reference=batch, kind=kind, ks=range(7), **options
    )


def prompts(n=200, seed=0):
    return TASK.monitor(n, split="all", generator=seeded(seed))


def test_k_neurons_of_a_memory_carry_k_of_n():
    found = memory_shares("zero").sel(skill="lookup", metric="log_prob")
    k = np.arange(7) / 6
    np.testing.assert_allclose(found.fraction.sel(part="kept"), k, atol=1e-6)
    np.testing.assert_allclose(found.fraction.sel(part="removed"), k, atol=1e-6)
    for draw in range(10):  # any k neurons of a memory carry the same
        np.testing.assert_allclose(found.random_fraction.sel(part="kept", draw=draw), k, atol=1e-6)
    assert float(found["all"]) == pytest.approx(0, abs=1e-6)
    assert float(found["none"]) == pytest.approx(-np.log(6))


def test_accuracy_of_a_memory_by_hand():
    """All removed neurons have the same mean: of the tokens whose neuron is removed the model gets one right."""
    found = memory_shares("mean").sel(skill="lookup", metric="accuracy")
    right = np.minimum(np.arange(7) + 1, 6) / 6
    np.testing.assert_allclose(found.score.sel(part="kept"), right)
    np.testing.assert_allclose(found.fraction.sel(part="kept"), (right - 1 / 6) * 6 / 5)
    np.testing.assert_allclose(found.score.sel(part="removed"), [1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


def test_the_neurons_that_matter_come_first():
    model = associative_memory(MAPPING)
    with torch.no_grad():
        model.blocks[0].mlp.W_out[[0, 2, 4]] *= torch.tensor([0.0, 0.3, 0.1])[:, None]
    found = memory_shares("zero", model)
    assert found.neuron.sel(skill="lookup").values.tolist()[-3:] == [2, 4, 0]
    top, random = (found[name].sel(part="kept", metric="log_prob", k=3) for name in ("fraction", "random_fraction"))
    assert top.item() > random.mean().item()


def test_recall_is_carried_and_elimination_is_not():
    batch = SMALL.enumerate(split="all")
    found = neuron_shares(dissociated(4), batch, skills=SMALL.skills(batch), reference=batch)
    assert found.measurable.sel(skill="recall").all()
    assert not found.measurable.sel(skill="elimination").any()
    assert found.fraction.sel(skill="elimination").isnull().all()
    assert found.random_fraction.sel(skill="elimination").isnull().all()
    assert found.fraction.sel(skill="recall", k=[0], part="kept").values.ravel() == pytest.approx([0, 0], abs=1e-5)
    last = found.k.values[-1]
    np.testing.assert_allclose(found.fraction.sel(skill="recall", k=last), 1, atol=1e-5)


@pytest.mark.parametrize("normalization", ["LN", "none"])
@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_untrained_models_have_no_shares(normalization, kind):
    for seed in range(3):
        spec = preset("v3", "quick", seed, changes={"model.normalization": normalization})
        model, batch = build(spec.model, d_vocab=6, n_ctx=9, seed=seed), prompts(1000)
        given = {"skills": TASK.skills(batch), "reference": batch, "ks": [4], "n_random": 1}
        found = neuron_shares(model, batch, kind=kind, **given)
        assert not found.measurable.any()
        assert found.fraction.isnull().all()
        assert not found.score.isnull().any()


def test_ranking_and_scores_come_from_different_halves():
    model, batch = random_model(), prompts()
    skills = TASK.skills(batch)
    found = neuron_shares(model, batch, skills=skills, reference=batch, seed=3)
    sequences = {}
    for name, rows in halves_of(batch, seed=3).items():
        masks = {skill: mask[rows] for skill, mask in skills.items()}
        sequences[name] = neuron_effects(model, batch.select(rows), skills=masks, reference=batch, kinds=("mean",))
    chosen, tested = (sequences[name].sel(kind="mean") for name in ("chosen", "tested"))
    for skill in skills:
        order = chosen.log_prob.sel(skill=skill).values.argsort(kind="stable")
        assert found.neuron.sel(skill=skill).values.tolist() == order.tolist()
        score = found.score.sel(skill=skill, part="removed", k=1, metric="log_prob")
        assert float(score) == pytest.approx(float(tested.log_prob.sel(skill=skill, neuron=order[0])), abs=1e-6)
        assert float(found["all"].sel(skill=skill, metric="log_prob")) == pytest.approx(
            float(tested.clean_log_prob.sel(skill=skill)), abs=1e-6
        )
    assert found.attrs["n"] == len(batch) // 2


def halves_of(batch, seed):
    from mnemoscope.core.seeding import generator

    order = torch.randperm(len(batch), generator=generator(seed, "halves"))
    return {"chosen": order[::2].sort()[0], "tested": order[1::2].sort()[0]}


def test_ends_of_the_curves_are_the_intact_model_and_the_one_without_the_layer():
    batch = prompts()
    found = neuron_shares(random_model(), batch, skills=TASK.skills(batch), reference=batch)
    assert found.k.values.tolist() == [0, 1, 2, 4, 8, 16]
    for values in (found.score, found.random_score.mean("draw")):
        np.testing.assert_allclose(values.sel(part="kept", k=0), found["none"], atol=1e-6)
        np.testing.assert_allclose(values.sel(part="kept", k=16), found["all"], atol=1e-6)
        np.testing.assert_allclose(values.sel(part="removed", k=0), found["all"], atol=1e-6)
        np.testing.assert_allclose(values.sel(part="removed", k=16), found["none"], atol=1e-6)


def test_draws_follow_the_seed_and_nothing_else():
    model, batch = random_model(), prompts(50)
    given = {"skills": TASK.skills(batch), "reference": batch, "n_random": 3}
    with global_generators_untouched():
        first, again, other = (neuron_shares(model, batch, seed=seed, **given) for seed in (0, 0, 1))
    assert first.identical(again)
    assert not first.random_score.equals(other.random_score)


def test_any_layer_of_a_deep_model(tmp_path):
    model, batch = foreign_model(n_layers=3, normalization_type="LN", n_ctx=9), prompts(30)
    given = {"skills": TASK.skills(batch), "reference": batch, "n_random": 2, "ks": [0, 5, 32]}
    for layer in range(3):
        assert reads_back(neuron_shares(model, batch, layer=layer, **given), tmp_path / f"{layer}.nc")


def test_wrong_input_is_refused():
    model, batch = random_model(), prompts(20)
    given = {"skills": TASK.skills(batch), "reference": batch}
    with pytest.raises(InputError, match="k must be from 0 to 16; got 17"):
        neuron_shares(model, batch, **given, ks=[17])
    with pytest.raises(InputError, match="ks must name at least one"):
        neuron_shares(model, batch, **given, ks=[])
    with pytest.raises(InputError, match="n_random must be at least 1"):
        neuron_shares(model, batch, **given, n_random=0)
    with pytest.raises(InputError, match="has no MLP"):
        neuron_shares(random_model(mlp=False), batch, **given, ks=[4])
    once = torch.zeros_like(batch.scored)
    once[0, -1] = True
    with pytest.raises(InputError, match="skill once is tested in one half of the sequences only"):
        neuron_shares(model, batch, skills={"once": once}, reference=batch)


@pytest.mark.slow
def test_in_v3_the_top_neurons_carry_more_than_random_ones(learned_v3):
    batch = learned_v3.spec.task.enumerate(split="test")
    skills = learned_v3.spec.task.skills(batch)
    found = neuron_shares(learned_v3.model(), batch, skills=skills, reference=batch)
    at = found.sel(skill="recall", part="kept", metric="log_prob", k=32)
    assert float(at.fraction) > float(at.random_fraction.max())
