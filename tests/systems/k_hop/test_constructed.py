"""The model that composes by doubling: right at every place, along the paths that its docstring names."""

import math

import pytest
import torch

from mnemoscope import InputError, evaluate
from mnemoscope.analyses import layer_attention
from mnemoscope.systems.k_hop.constructed import doubling, doubling_circuit, doubling_layers
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import seeded

SIZES = [
    {},
    {"cyclic": False},
    {"n_functions": 8, "hops": (1, 2, 4, 8), "n_symbols": 5},
    {"n_functions": 3, "hops": (1, 2)},
    {"n_functions": 1, "hops": (1,)},
]


def sample(n=200, **fields):
    task = KHop(**fields).for_seed(3)
    return task, task.sample(n, split="train", generator=seeded())


@pytest.mark.parametrize("fields", SIZES, ids=str)
@torch.no_grad()
def test_every_place_is_answered(fields):
    task, batch = sample(**fields)
    assert torch.allclose(doubling(task)(batch.inputs)[batch.scored], batch.targets[batch.scored], atol=1e-6)
    assert doubling(task).cfg.n_layers == doubling_layers(task.hops[-1]) == math.log2(task.hops[-1]) + 1


@torch.no_grad()
def test_the_hidden_permutations_are_in_its_weights():
    task, batch = sample()
    given = doubling(KHop(hidden_seed=4))(batch.inputs)[..., task.parts["hops_4"]].argmax(-1)
    assert 0.1 < float((given == batch.latents["after_4"]).float().mean()) < 0.5


def test_stopped_early_it_knows_fewer_hops_and_says_so():
    task, batch = sample()
    found = evaluate(doubling(task, reached=2), task, batch).loss.mean("pos")
    assert found.sel(part=["hops_1", "hops_2", "hops_4"]).values.tolist() == pytest.approx([0, 0, 3 / 16], abs=1e-6)


def test_who_attends_where():
    task, batch = sample()
    model, latents = doubling(task, n_heads=2), batch.latents
    for layer in range(3):
        pattern = layer_attention(model, layer, batch)[:, 0]
        if layer == 0:
            expected = latents["at_1"]
        else:
            ahead = (latents["function"] + 2 ** (layer - 1)) % 4
            expected = 4 * ahead + latents[f"after_{2 ** (layer - 1)}"]
        assert float(pattern.gather(-1, expected[..., None]).min()) > 1 - 1e-6


@torch.no_grad()
def test_what_the_residual_stream_holds():
    task, batch = sample()
    _, cache = doubling(task).run_with_cache(batch.inputs)
    for layer, hops in enumerate(task.hops):
        block = doubling_circuit(task).dims[f"hop{hops}"]
        assert torch.equal(cache["resid_post", layer][..., block].argmax(-1), batch.latents[f"after_{hops}"])


def test_other_numbers_of_hops_are_refused():
    with pytest.raises(InputError, match="powers of two"):
        doubling(KHop(hops=(1, 3), hidden_seed=0))
