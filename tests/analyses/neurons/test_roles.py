import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.neuron_groups import neuron_roles, role_groups
from mnemoscope.analyses.neuron_removal import group_effects, neuron_effects
from mnemoscope.analyses.neurons import NeuronActivity, neuron_activity, selectivity
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset
from mnemoscope.models.building import build
from mnemoscope.systems.tiny_recall.constructed import dissociated, dissociated_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3, split_seed=0)
SMALL = PermutationLookup(n_values=4, repeat_ratio=0.3, split_seed=0)


def planted() -> tuple[xr.Dataset, list[str]]:
    """Neurons whose activity is set by hand, and the roles that they have by construction."""
    batch = SMALL.enumerate(split="all")
    known = batch.latents
    repeat, noise = known["is_repeat"], torch.rand(len(batch), generator=seeded()) - 0.5
    neurons = {
        "recalled": repeat & (known["recalled"] == 3),
        "is_repeat": repeat * (1 + known["recalled"]),  # how active it is does not matter, only whether
        "source_slot": known["source_slot"] == 2,
        "unused": known["unused"] == 1,
        "silent": -torch.ones(len(batch)),
        "constant": torch.ones(len(batch)),
        "none": noise,
        "token": (batch.inputs[:, -1] <= 2) & (noise < 0.4),
        "y": known["y"][:, 1] == 4,
        "mapping": known["mapping"][:, 1] != 2,
        "target": batch.targets[:, -1] == 2,
    }
    recorded = neuron_activity(random_model(), batch)
    activation = torch.stack([values.double() for values in neurons.values()], 1)
    activity = NeuronActivity(**{**vars(recorded), "activation": activation})
    return selectivity(activity, n_draws=3), list(neurons)


def effects_of(model, task, batch, **options):
    return neuron_effects(model, batch, skills=task.skills(batch), reference=batch, **options)


def test_planted_roles_are_found():
    information, expected = planted()
    found = neuron_roles(information)
    assert found.role.values.tolist() == expected
    assert found.latent.values.tolist() == [
        *("recalled", "is_repeat", "source_slot", "unused", "", "", "", "token", "y[2]", "mapping[2]", "target")
    ]
    np.testing.assert_allclose(found.explains.values[:4], 1)
    assert found.group.values.tolist() == expected
    assert role_groups(found, by="role")["unused"] == [3]


def test_roles_do_not_depend_on_the_order_of_the_neurons():
    information, expected = planted()
    found = neuron_roles(information.isel(neuron=slice(None, None, -1)))
    assert found.role.values.tolist() == expected[::-1]


def test_the_planted_memory_serves_recall_alone():
    model, batch = dissociated(4), SMALL.enumerate(split="all")
    effects = effects_of(model, SMALL, batch)
    information = selectivity(neuron_activity(model, batch), n_draws=2)
    assert effects.measurable.sel(kind="mean", metric="log_prob").values.tolist() == [False, True]
    found = neuron_roles(information, effects)
    assert not found.serves.sel(skill="elimination").any()
    used = [neuron for key, group in dissociated_circuit(4).neurons.items() if len(key) == 2 for neuron in group]
    idle = sorted(set(range(found.sizes["neuron"])) - set(used))
    assert not found.serves.sel(neuron=idle).any()
    assert (found.serves.sel(skill="recall", neuron=used) == 1).sum() >= 16  # one at least for a token and a value
    groups = role_groups(found)
    serving = [neuron for name, group in groups.items() if "+recall" in name for neuron in group]
    alone = group_effects(
        model, batch, {"serving": serving}, skills=SMALL.skills(batch), reference=batch, kinds=("mean",)
    )
    assert alone.accuracy.sel(skill="elimination").item() == pytest.approx(1)
    assert alone.accuracy.sel(skill="recall").item() < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_neurons_of_untrained_models_serve_no_skill(seed):
    spec = preset("v3", "quick", seed)
    model = build(spec.model, d_vocab=6, n_ctx=9, seed=seed)
    batch = TASK.monitor(700, split="all", generator=seeded(seed))
    effects = effects_of(model, TASK, batch, kinds=("mean",))
    found = neuron_roles(selectivity(neuron_activity(model, batch), n_draws=2), effects)
    assert not found.serves.any()
    assert (found.group == found.role).all()
    assert (found.role == "token").sum() > 32  # random features of the input, and no more


def test_signs_are_those_of_the_effect():
    information, expected = planted()
    n = len(expected)
    drop = np.zeros((1, n, 2))
    drop[0, 0], drop[0, 1], drop[0, 2], drop[0, 3] = (0.5, 0), (-0.5, 0.2), (0.005, 0.2), (0.5, 0.2)
    error = np.zeros((1, n, 2))
    error[0, 3, 0] = 0.2
    skills = ["elimination", "recall"]
    effects = xr.Dataset(
        {
            "clean_log_prob": ("skill", [0.0, 0.0]),
            "log_prob": (("kind", "neuron", "skill"), -drop),
            "log_prob_error": (("kind", "neuron", "skill"), error),
            "layer_log_prob": (("kind", "skill"), [[-1.0, -30.0]]),
            "measurable": (("kind", "skill", "metric"), [[[True], [True]]]),
        },
        coords={"kind": ["mean"], "skill": skills, "metric": ["log_prob"]},
        attrs={"layer": 0},
    )
    found = neuron_roles(information, effects)
    assert found.serves.values[:5].tolist() == [[1, 0], [-1, 0], [0, 0], [0, 0], [0, 0]]
    assert found.group.values[:3].tolist() == ["recalled +elimination", "is_repeat -elimination", "source_slot"]
    nothing = neuron_roles(information, effects.assign(measurable=~effects.measurable))
    assert not nothing.serves.any()


def test_results_can_be_saved(tmp_path):
    assert reads_back(neuron_roles(planted()[0]), tmp_path / "result.nc")


def test_wrong_input_is_refused():
    information, _ = planted()
    model, batch = random_model(), TASK.sample(200, split="all", generator=seeded())
    effects = effects_of(model, TASK, batch, kinds=("zero",))
    with pytest.raises(InputError, match="kind must be one of: zero; got 'mean'"):
        neuron_roles(information, effects)
    with pytest.raises(InputError, match="effects must be of the neurons of layer 0"):
        neuron_roles(information, effects, kind="zero")
    with pytest.raises(InputError, match="by must be one of"):
        role_groups(neuron_roles(information), by="latent")
