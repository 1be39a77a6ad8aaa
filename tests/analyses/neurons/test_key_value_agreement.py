import numpy as np
import pytest
import torch

from mnemoscope.analyses.neuron_groups import neuron_agreement
from mnemoscope.analyses.neurons import neuron_activity, neuron_values
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset
from mnemoscope.models.building import build
from mnemoscope.models.constructed import associative_memory
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3, split_seed=0)
MAPPING = (2, 0, 3, 1, 5, 4)


def tokens_once(mapping) -> Batch:
    inputs = torch.arange(len(mapping))[:, None]
    return Batch(inputs=inputs, targets=torch.tensor(mapping)[:, None], scored=torch.ones_like(inputs).bool())


def agreement_of(model, batch, **options):
    return neuron_agreement(neuron_activity(model, batch), neuron_values(model), **options)


def test_a_memory_agrees_perfectly():
    found = agreement_of(associative_memory(MAPPING), tokens_once(MAPPING))
    np.testing.assert_allclose(found.correlation, 1)
    assert found.trigger_agreement.values.tolist() == [1] * 6
    assert found.trigger_conflict.values.tolist() == [0] * 6
    assert found.top_token.values.tolist() == list(MAPPING)
    for name in ("correlation", "trigger_agreement"):
        assert found[f"{name}_p"] <= 3 / 201  # the true order is one of 720
        assert float(found[f"{name}_mean"]) > 4 * float(found[f"{name}_control"].std())


def test_permuted_targets_destroy_the_agreement():
    found = agreement_of(associative_memory(MAPPING), tokens_once((0, 2, 1, 5, 4, 3)))  # no token as in MAPPING
    assert found.trigger_agreement.values.tolist() == [0, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(found.correlation, -1 / 5)  # two different one-hot vectors of six
    assert found.correlation_p == 1


def test_a_neuron_that_suppresses_where_it_fires_disagrees_and_one_that_spares_agrees():
    model = associative_memory(MAPPING)
    with torch.no_grad():
        model.blocks[0].mlp.W_out.neg_()
    found = agreement_of(model, tokens_once(MAPPING))
    np.testing.assert_allclose(found.correlation, -1)
    assert found.trigger_conflict.values.tolist() == [1] * 6
    assert found.trigger_conflict_p == 1
    with torch.no_grad():
        model.blocks[0].mlp.W_in.neg_()
        model.blocks[0].mlp.b_in.fill_(1)  # active for every token but the key
    found = agreement_of(model, tokens_once(MAPPING))
    np.testing.assert_allclose(found.correlation, 1)
    assert found.trigger_conflict.values.tolist() == [0] * 6
    assert found.trigger_conflict_p <= 3 / 201


def test_figures_by_hand():
    model, batch = random_model(), TASK.sample(200, split="all", generator=seeded())
    found = agreement_of(model, batch, n_triggers=5)
    _, cache = model.run_with_cache(batch.inputs)
    post, target = cache["blocks.0.mlp.hook_post"][:, -1].double().numpy(), batch.targets[:, -1].numpy()
    for neuron in (1, 7):
        means = [post[target == token, neuron].mean() for token in range(1, 6)]
        value = neuron_values(model).value.sel(neuron=neuron).values[1:]
        assert float(found.correlation[neuron]) == pytest.approx(np.corrcoef(means, value)[0, 1], abs=1e-6)
        strongest = np.argsort(-post[:, neuron], kind="stable")[:5]
        expected = (target[strongest] == 1 + value.argmax()).mean()
        assert float(found.trigger_agreement[neuron]) == pytest.approx(expected)


def test_silent_neurons_have_no_agreement():
    model = associative_memory(MAPPING)
    with torch.no_grad():
        model.blocks[0].mlp.b_in[2] = -5
        model.blocks[0].mlp.W_out[3] = 0
    found = agreement_of(model, tokens_once(MAPPING))
    assert found.correlation.isnull().values.tolist() == [False, False, True, True, False, False]
    assert found.trigger_agreement.isnull().values.tolist() == [False, False, True, False, False, False]
    assert float(found.correlation_mean) == pytest.approx(1)


@pytest.mark.parametrize("normalization", ["LN", "none"])
def test_untrained_models_do_not_agree(normalization):
    small = []
    for seed in range(10):
        spec = preset("v3", "quick", seed, changes={"model.normalization": normalization})
        model = build(spec.model, d_vocab=6, n_ctx=9, seed=seed)
        batch = TASK.sample(1000, split="all", generator=seeded(seed))
        found = agreement_of(model, batch, n_draws=60)
        small += [float(found[f"{name}_p"]) for name in ("correlation", "trigger_agreement", "trigger_conflict")]
    assert np.mean(np.array(small) <= 0.05) <= 0.15  # one in twenty is chance
    assert 0.3 < np.mean(small) < 0.7


def test_draws_follow_the_seed_and_nothing_else():
    activity = neuron_activity(random_model(), TASK.sample(50, split="all", generator=seeded()))
    values = neuron_values(random_model())
    with global_generators_untouched():
        first, again, other = (neuron_agreement(activity, values, n_draws=5, seed=seed) for seed in (0, 0, 1))
    assert first.identical(again)
    assert not first.correlation_control.equals(other.correlation_control)


def test_results_can_be_saved(tmp_path):
    assert reads_back(agreement_of(associative_memory(MAPPING), tokens_once(MAPPING)), tmp_path / "result.nc")


def test_wrong_input_is_refused():
    batch = TASK.sample(50, split="all", generator=seeded())
    model = random_model(n_layers=2)
    activity = neuron_activity(model, batch, layer=1)
    with pytest.raises(InputError, match="all 16 neurons of layer 1, in order; got 16 of layer 0"):
        neuron_agreement(activity, neuron_values(model))
    with pytest.raises(InputError, match="got 2 of layer 1"):
        neuron_agreement(activity, neuron_values(model, layer=1, neurons=[0, 1]))
    with pytest.raises(InputError, match="n_triggers must be at least 1"):
        neuron_agreement(activity, neuron_values(model, layer=1), n_triggers=0)
    with pytest.raises(InputError, match="at least two; the targets are"):
        agreement_of(associative_memory((1, 0)), tokens_once((1, 0)))


@pytest.mark.slow
def test_in_v3_activity_and_value_agree(learned_v3):
    batch = learned_v3.spec.task.enumerate(split="test")
    assert agreement_of(learned_v3.model(), batch).correlation_p <= 0.02
