import numpy as np
import pytest
import torch

from mnemoscope.analyses.ablation import REPLACEMENTS, ablate
from mnemoscope.analyses.neuron_removal import group_effects, neuron_effects
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Mean
from mnemoscope.core.metrics import at_target
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import run_with
from mnemoscope.models.constructed import associative_memory
from mnemoscope.systems.tiny_recall.constructed import dissociated, dissociated_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.bridge import as_bridge
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3, split_seed=0)
SMALL = PermutationLookup(n_values=4, repeat_ratio=0.3, split_seed=0)
MAPPING = (2, 0, 3, 1, 4)


def prompts(n=60, seed=0):
    return TASK.sample(n, split="all", generator=seeded(seed))


def by_hooks(model, batch, groups, layer, **options):
    sites = {name: [Site(kind="post", layer=layer, neuron=tuple(group))] for name, group in groups.items()}
    return ablate(model, batch, targets=sites, **options)


@pytest.mark.parametrize("fields", [{}, {"normalization": "none"}, {"n_layers": 2, "layer": 0}, {"n_layers": 2}])
def test_effects_are_those_of_one_forward_pass_a_neuron(fields):
    layer = fields.pop("layer", fields.get("n_layers", 1) - 1)
    model, batch = random_model(**fields), prompts()
    given = {"skills": {**TASK.skills(batch), "any": batch.scored}, "reference": prompts(40, seed=1)}
    found = neuron_effects(model, batch, layer=layer, **given)
    expected = by_hooks(model, batch, {str(i): [i] for i in range(16)}, layer, **given)
    for name in ("log_prob", "accuracy", "clean_log_prob", "clean_accuracy"):
        np.testing.assert_allclose(found[name].values, expected[name].values, atol=1e-5)
    single = ["elimination", "recall"]  # in `any` a sequence has several places, which are not independent
    errors = (found.accuracy_error.sel(skill=single).values, expected.accuracy_error.sel(skill=single).values)
    np.testing.assert_allclose(*errors, rtol=0.1, atol=1e-6)


def test_groups_are_those_of_one_forward_pass_each():
    model, batch = random_model(n_layers=2), prompts()
    given = {"skills": TASK.skills(batch), "reference": prompts(40, seed=1), "kinds": REPLACEMENTS}
    groups = {"some": [3, 1, 7], "all": list(range(16))}
    found = group_effects(model, batch, {**groups, "empty": [], "twice": [1, 1]}, layer=0, **given)
    expected = by_hooks(model, batch, groups, 0, **given)
    np.testing.assert_allclose(found.log_prob.sel(group=["some", "all"]), expected.log_prob, atol=1e-5)
    assert found["size"].values.tolist() == [3, 16, 0, 1]
    np.testing.assert_array_equal(found.log_prob.sel(group="empty", kind="zero"), found.clean_log_prob)
    single = neuron_effects(model, batch, layer=0, **given)
    np.testing.assert_allclose(found.log_prob.sel(group="twice"), single.log_prob.sel(neuron=1), atol=1e-6)
    np.testing.assert_allclose(found.log_prob.sel(group="all"), single.layer_log_prob, atol=1e-6)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_bridge_gives_the_same(layer):
    model, batch = random_model(n_layers=2), prompts(20)
    given = {"skills": TASK.skills(batch), "reference": batch, "layer": layer}
    ours, theirs = (neuron_effects(m, batch, **given) for m in (model, as_bridge(model)))
    for name in ("log_prob", "accuracy", "layer_log_prob"):
        np.testing.assert_allclose(theirs[name], ours[name], atol=1e-5)


def test_removing_the_layer_is_removing_its_output():
    model, batch = random_model(), prompts()
    given = {"skills": TASK.skills(batch), "reference": prompts(40, seed=1), "kinds": ("mean", "resample")}
    found = neuron_effects(model, batch, **given)
    sites = {"MLP": [Site(kind="mlp_out", layer=0)]}
    expected = ablate(model, batch, targets=sites, **given).isel(component=0)
    np.testing.assert_allclose(found.layer_log_prob, expected.log_prob, atol=1e-5)


def test_sets_are_cut_to_a_budget_without_a_difference(monkeypatch):
    model, batch = random_model(n_layers=2), prompts()
    given = {"skills": TASK.skills(batch), "reference": batch, "kinds": ("mean",), "layer": 0}
    whole = neuron_effects(model, batch, **given)
    monkeypatch.setattr("mnemoscope.engine.budget.MAX_BYTES", 30_000)
    np.testing.assert_allclose(neuron_effects(model, batch, **given).log_prob, whole.log_prob, atol=1e-6)


def test_a_memory_loses_the_token_of_the_neuron_that_is_removed():
    tokens = torch.arange(5)[:, None]
    targets = torch.tensor(MAPPING)[:, None]
    batch = Batch(inputs=tokens, targets=targets, scored=torch.ones_like(tokens).bool())
    skills = {f"token {i}": batch.inputs == i for i in range(5)}
    found = neuron_effects(associative_memory(MAPPING), batch, skills=skills, reference=batch, kinds=("zero", "mean"))
    assert (found.clean_accuracy == 1).all()
    lost = np.full((5, 5), 0.0)
    np.fill_diagonal(lost, -np.log(5))
    np.testing.assert_allclose(found.log_prob.sel(kind="zero"), lost, atol=1e-7)
    expected = {(i, i) for i in range(5) if MAPPING[i] != 0}  # of equal logits the first token counts
    wrong = np.argwhere(found.accuracy.sel(kind="zero").values == 0)
    assert {tuple(pair) for pair in wrong} == expected
    np.testing.assert_array_equal(found.accuracy.sel(kind="mean"), 1)  # a fifth of the value is still the largest


def test_neurons_of_one_token_carry_the_recall_of_that_token():
    model, circuit, batch = dissociated(4), dissociated_circuit(4), SMALL.enumerate(split="all")
    groups: dict[str, list[int]] = {}
    for key, neurons in circuit.neurons.items():
        if len(key) == 2:
            groups.setdefault(f"token {key[0]}", []).extend(neurons)
    found = group_effects(model, batch, groups, skills=SMALL.skills(batch), reference=batch, kinds=("zero",))
    np.testing.assert_allclose(found.accuracy.sel(skill="elimination"), 1)
    np.testing.assert_allclose(found.accuracy.sel(skill="recall"), 0.75)


def test_weights_count_within_a_skill():
    model, batch = random_model(), prompts(30)
    repeats = torch.randint(0, 3, (30,), generator=seeded())
    rows = torch.arange(30).repeat_interleave(repeats)
    fields = {"inputs": batch.inputs, "targets": batch.targets, "scored": batch.scored}
    weighted = Batch(**fields, weights=repeats / repeats.sum())
    repeated = Batch(**{name: value[rows] for name, value in fields.items()})
    given = {"reference": batch, "kinds": ("mean",)}
    one = neuron_effects(model, weighted, skills={"any": weighted.scored}, **given)
    other = neuron_effects(model, repeated, skills={"any": repeated.scored}, **given)
    np.testing.assert_allclose(one.log_prob, other.log_prob, atol=1e-6)
    nothing = Batch(**fields, weights=torch.zeros(30))
    plain = Batch(**fields)
    even = [neuron_effects(model, b, skills={"any": b.scored}, **given).log_prob for b in (nothing, plain)]
    np.testing.assert_allclose(*even, atol=1e-12)


def test_places_of_one_sequence_are_not_independent():
    model, batch = random_model(), prompts(50)
    given = {"reference": batch, "kinds": ("mean",)}
    doubled = Batch(
        inputs=torch.cat((batch.inputs, batch.inputs)),
        targets=torch.cat((batch.targets, batch.targets)),
        scored=torch.cat((batch.scored, batch.scored)),
    )
    one = neuron_effects(model, batch, skills={"any": batch.scored}, **given)
    two = neuron_effects(model, doubled, skills={"any": doubled.scored}, **given)
    np.testing.assert_allclose(two.log_prob_error * 2**0.5, one.log_prob_error, rtol=1e-4)
    removed = Mean(site=Site(kind="post", layer=0, neuron=4), source=Named(name="reference", value=batch))
    right, wrong = (run_with(model, batch, kind).double().log_softmax(-1) for kind in ([], [removed]))
    drop = (at_target(right, batch.targets) - at_target(wrong, batch.targets))[batch.scored].view(50, 5).mean(1)
    expected = drop.std(correction=0) / 50**0.5
    np.testing.assert_allclose(one.log_prob_error.sel(neuron=4).item(), expected.item(), rtol=1e-4)


def test_nothing_is_left_behind_and_draws_follow_the_seed():
    model, batch = random_model(), prompts()
    given = {"skills": TASK.skills(batch), "reference": prompts(40, seed=1), "kinds": ("resample",)}
    before = model(batch.inputs)
    with global_generators_untouched():
        first, again, other = (neuron_effects(model, batch, seed=seed, **given) for seed in (0, 0, 1))
    assert first.identical(again)
    assert not first.log_prob.equals(other.log_prob)
    torch.testing.assert_close(model(batch.inputs), before, atol=0, rtol=0)


def test_a_deep_model_fits():
    model = foreign_model(n_layers=12, d_model=16, normalization_type="LN", n_ctx=9)
    batch = prompts(40)
    for layer in (0, 11):
        given = {"skills": TASK.skills(batch), "reference": batch, "kinds": ("mean",), "layer": layer}
        assert neuron_effects(model, batch, **given).sizes["neuron"] == 64


def test_results_can_be_saved(tmp_path):
    batch = prompts()
    found = neuron_effects(random_model(), batch, skills=TASK.skills(batch), reference=batch)
    assert reads_back(found, tmp_path / "result.nc")


def test_wrong_input_is_refused():
    model, batch = random_model(), prompts()
    given = {"skills": TASK.skills(batch), "reference": batch}
    with pytest.raises(InputError, match="has no MLP"):
        neuron_effects(random_model(mlp=False), batch, **given)
    with pytest.raises(InputError, match="the kind of an ablation must be one of: zero, mean, resample"):
        neuron_effects(model, batch, **given, kinds=("knockout",))
    with pytest.raises(InputError, match="kinds must name at least one"):
        neuron_effects(model, batch, **given, kinds=())
    with pytest.raises(InputError, match="of one length"):
        neuron_effects(model, batch, skills=given["skills"], reference=SMALL.enumerate(split="test"))
    with pytest.raises(InputError, match="a neuron must be from 0 to 15; got 16"):
        group_effects(model, batch, {"a": [16]}, **given)
    with pytest.raises(InputError, match="groups must name at least one"):
        group_effects(model, batch, {}, **given)
    with pytest.raises(InputError, match="skill never is tested at no position"):
        neuron_effects(model, batch, skills={"never": torch.zeros_like(batch.scored)}, reference=batch)
    with pytest.raises(InputError, match=r"must have the shape .batch, pos. of the batch, .60, 9.; got .3, 9."):
        neuron_effects(model, batch, skills={"short": batch.scored[:3]}, reference=batch)
    with pytest.raises(InputError, match="skills must name at least one"):
        neuron_effects(model, batch, skills={}, reference=batch)
    with torch.no_grad():
        model.blocks[0].mlp.W_out[0, 0] = torch.nan
    with pytest.raises(InputError, match=r"mlp\.W_out of the model holds NaN"):
        neuron_effects(model, batch, **given)
