import math

import numpy as np
import pytest
import torch

from mnemoscope.analyses.neuron_groups import top_inputs
from mnemoscope.analyses.neurons import NeuronActivity, neuron_activity, selectivity
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import associative_memory
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup, position_names
from tests.support import foreign_model, global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3, split_seed=0)
MAPPING = (2, 0, 3, 1)


def tokens_once(mapping=MAPPING) -> Batch:
    """Every token once, its answer as target."""
    inputs = torch.arange(len(mapping))[:, None]
    return Batch(inputs=inputs, targets=torch.tensor(mapping)[:, None], scored=torch.ones_like(inputs).bool())


def written(batch: Batch, *columns: torch.Tensor) -> NeuronActivity:
    """The activity of neurons whose activations are given, at the last position."""
    recorded = neuron_activity(random_model(), batch)
    activation = torch.stack([column.double() for column in columns], 1)
    fields = ("layer", "batch", "weights", "sequence", "pos", "latents")
    return NeuronActivity(activation=activation, **{name: getattr(recorded, name) for name in fields})


def binary_entropy(p):
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def test_activity_is_post_at_the_position():
    model, batch = random_model(), TASK.sample(20, split="all", generator=seeded())
    _, cache = model.run_with_cache(batch.inputs)
    for pos, places in ((None, [8]), (-2, [7]), ([0, 4], [0, 4])):
        activity = neuron_activity(model, batch, pos=pos)
        expected = cache["blocks.0.mlp.hook_post"][:, places].flatten(0, 1).double()
        torch.testing.assert_close(activity.activation, expected)
        assert activity.pos.tolist() == places * 20
        assert activity.sequence.tolist() == [i for i in range(20) for _ in places]
        torch.testing.assert_close(activity.weights.sum(), torch.tensor(1, dtype=torch.double))


def test_latents_are_named_and_taken_apart():
    batch = TASK.sample(9, split="all", generator=seeded())
    latents = neuron_activity(random_model(), batch, pos=6).latents
    assert list(latents)[:3] == ["target", "token", "position"]
    assert [name for name in latents if name.startswith("input")] == [
        f"input@{name}" for name in position_names(TASK)[:7]
    ]
    torch.testing.assert_close(latents["y[2]"], batch.latents["y"][:, 1])
    torch.testing.assert_close(latents["target"], batch.targets[:, 6])
    torch.testing.assert_close(latents["input@y2"], batch.inputs[:, 3])
    assert latents["is_repeat"].dtype == torch.int64


def test_a_latent_with_a_value_a_position_is_taken_there():
    batch = tokens_once()
    known = {"own": batch.inputs + 5, "vector": torch.rand(4, 2)}
    batch = Batch(inputs=batch.inputs, targets=batch.targets, scored=batch.scored, known=known)
    latents = neuron_activity(associative_memory(MAPPING), batch).latents
    assert latents["own"].tolist() == [5, 6, 7, 8]
    assert "vector" not in latents


def test_a_memory_is_active_for_its_key_alone():
    found = selectivity(neuron_activity(associative_memory(MAPPING), tokens_once()))
    assert found.active.values.tolist() == [0.25] * 4
    np.testing.assert_allclose(found.neuron_entropy, binary_entropy(0.25))
    np.testing.assert_allclose(found.information.sel(latent="token"), binary_entropy(0.25))
    np.testing.assert_allclose(found.explains.sel(latent="token"), 1)
    np.testing.assert_allclose(found.readable.sel(latent="token"), binary_entropy(0.25) / 2)
    assert found.latent.values.tolist() == ["target", "token", "input@0"]  # the position does not vary


def test_information_is_that_of_the_distribution_and_not_of_the_rows():
    batch = PermutationLookup(n_values=4, repeat_ratio=0.3).enumerate(split="all")
    repeat = batch.latents["is_repeat"]
    found = selectivity(written(batch, repeat, repeat & (batch.latents["recalled"] == 3)), n_draws=1)
    share = 0.3 / 4
    assert found.active.values == pytest.approx([0.3, share])
    inside = binary_entropy(share) - 0.3 * binary_entropy(1 / 4)
    information = found.information.sel(latent="is_repeat").values
    assert information == pytest.approx([binary_entropy(0.3), inside], abs=1e-6)  # weights are float32
    assert found.information.sel(latent="recalled").values == pytest.approx(
        [binary_entropy(0.3), binary_entropy(share)]
    )
    assert found.latent_entropy.sel(latent="mapping[2]").item() == pytest.approx(2, abs=1e-6)
    assert float(found.information.sel(neuron=0, latent="mapping[2]")) == pytest.approx(0, abs=1e-9)


def test_quantiles_see_what_active_or_not_does_not():
    batch = TASK.enumerate(split="test")
    always = written(batch, batch.inputs[:, 8] + 1, torch.ones(len(batch)))
    plain, cut = selectivity(always, n_draws=1), selectivity(always, n_states=5, n_draws=1)
    np.testing.assert_allclose(plain.neuron_entropy, 0, atol=1e-9)
    assert plain.explains.isnull().all()
    np.testing.assert_allclose(cut.neuron_entropy, [math.log2(5), 0], atol=1e-4)
    np.testing.assert_allclose(cut.explains.sel(neuron=0, latent="token"), 1)
    assert (plain.attrs["state"], cut.attrs["state"]) == ("active or not", "5 quantiles of the activation")


def test_the_control_measures_the_bias_of_a_sample():
    batch = TASK.sample(300, split="all", generator=seeded())
    noise = (torch.rand(300, 40, generator=seeded(1)) - 0.5).unbind(1)
    found = selectivity(written(batch, *noise), latents=["y", "token"], n_draws=20)
    bias = 4 / (2 * 300 * math.log(2))
    assert float(found.information.mean()) == pytest.approx(bias, rel=0.15)
    assert float(found.control.mean()) == pytest.approx(bias, rel=0.15)
    assert (found.control_level > found.control.max("neuron")).all()


def test_draws_follow_the_seed_and_nothing_else():
    activity = neuron_activity(random_model(), TASK.sample(30, split="all", generator=seeded()))
    with global_generators_untouched():
        first, again, other = (selectivity(activity, seed=seed) for seed in (0, 0, 1))
    assert first.identical(again)
    assert not first.control.equals(other.control)
    assert first.information.equals(other.information)


def test_several_positions_let_the_position_be_a_latent():
    batch = TASK.sample(40, split="all", generator=seeded())
    recorded = neuron_activity(random_model(), batch, pos=[0, 2, 4, 6])
    activity = NeuronActivity(**{**vars(recorded), "activation": (recorded.pos[:, None] == 2).double()})
    found = selectivity(activity)
    assert float(found.explains.sel(latent="position", neuron=0)) == pytest.approx(1)
    assert "input@y1" not in found.latent


def test_some_latents_by_name_and_family():
    activity = neuron_activity(random_model(), TASK.sample(30, split="all", generator=seeded()))
    assert selectivity(activity, latents=["y", "unused"]).latent.values.tolist() == [
        *(f"y[{i}]" for i in range(1, 6)),
        "unused",
    ]
    assert selectivity(activity, latents=["y[3]"]).latent.values.tolist() == ["y[3]"]
    with pytest.raises(InputError, match="a latent must be one of"):
        selectivity(activity, latents=["z"])


def test_neurons_of_random_weights_carry_information_too():
    activity = neuron_activity(random_model(), TASK.enumerate(split="test"))
    found = selectivity(activity, latents=["token"], n_draws=3)
    assert (found.information > 10 * found.control_level).any()


def test_triggers_are_the_rows_of_the_highest_activation():
    batch = TASK.sample(50, split="all", generator=seeded())
    found = top_inputs(neuron_activity(random_model(), batch), n=4)
    model = random_model()
    _, cache = model.run_with_cache(batch.inputs)
    post = cache["blocks.0.mlp.hook_post"][:, -1].double()
    for neuron in range(16):
        at = found.sel(neuron=neuron)
        n_active = min(4, int((post[:, neuron] > 0).sum()))
        assert at.active.values.tolist() == [True] * n_active + [False] * (4 - n_active)
        expected = post[:, neuron].sort(descending=True)[0][:n_active]
        np.testing.assert_allclose(at.activation.values[:n_active], expected, rtol=1e-5)
        for rank in range(n_active):
            row = int(at.sequence[rank])
            np.testing.assert_array_equal(at.inputs[rank], batch.inputs[row])
            assert float(at.latents.sel(latent="unused")[rank]) == int(batch.latents["unused"][row])
        assert at.activation.isnull().values.tolist() == (~at.active).values.tolist()
        assert (at.inputs.values[n_active:] == -1).all()


def test_triggers_of_a_memory_are_its_keys():
    found = top_inputs(neuron_activity(associative_memory(MAPPING), tokens_once()), n=3)
    assert found.active.values.tolist() == [[True, False, False]] * 4
    assert found.latents.sel(latent="token", rank=1).values.tolist() == [0, 1, 2, 3]
    assert found.latents.sel(latent="target", rank=1).values.tolist() == list(MAPPING)


def test_sequences_of_weight_zero_are_no_triggers():
    activity = neuron_activity(random_model(), PermutationLookup(split_seed=0).enumerate(split="test"))
    assert not activity.latents["is_repeat"].any()
    assert "is_repeat" not in selectivity(activity, n_draws=1).latent


def test_results_can_be_saved(tmp_path):
    activity = neuron_activity(random_model(), TASK.sample(30, split="all", generator=seeded()))
    for result in (selectivity(activity, n_draws=1), top_inputs(activity)):
        assert reads_back(result, tmp_path / "result.nc")


def test_a_deep_model_is_read_at_any_layer():
    model = foreign_model(n_layers=12, d_model=16, act_fn="gelu")
    batch = Batch(
        inputs=torch.randint(0, 50, (30, 6), generator=seeded()),
        targets=torch.randint(0, 50, (30, 6), generator=seeded(1)),
        scored=torch.ones(30, 6, dtype=torch.bool),
    )
    assert selectivity(neuron_activity(model, batch, layer=11), n_draws=1).sizes["neuron"] == 64


def test_what_cannot_be_recorded_is_refused():
    batch = TASK.sample(5, split="all", generator=seeded())
    with pytest.raises(InputError, match="has no MLP"):
        neuron_activity(random_model(mlp=False), batch)
    with pytest.raises(InputError, match="pos must be from -9 to 8; got 9"):
        neuron_activity(random_model(), batch, pos=9)
    with pytest.raises(InputError, match="each once"):
        neuron_activity(random_model(), batch, pos=[8, -1])
    with pytest.raises(InputError, match="layer must be 0"):
        neuron_activity(random_model(), batch, layer=1)
    with pytest.raises(InputError, match="uses token"):
        neuron_activity(random_model(d_vocab=5), batch)
    unscored = Batch(inputs=batch.inputs, targets=batch.targets, scored=torch.zeros_like(batch.scored))
    with pytest.raises(InputError, match="scores no position"):
        neuron_activity(random_model(), unscored)
    weightless = Batch(inputs=batch.inputs, targets=batch.targets, scored=batch.scored, weights=torch.zeros(5))
    with pytest.raises(InputError, match="no sequence of the batch weighs anything"):
        neuron_activity(random_model(), weightless)
    with pytest.raises(InputError, match="n_states must be at least 2"):
        selectivity(neuron_activity(random_model(), batch), n_states=1)
    with pytest.raises(InputError, match="none of the latents varies"):
        selectivity(neuron_activity(random_model(), batch), latents=["position"])
