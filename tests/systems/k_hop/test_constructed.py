"""The model that composes by doubling: right for every query, along the paths that its docstring names."""

import math

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.analyses import layer_attention
from mnemoscope.systems.k_hop.constructed import doubling, doubling_circuit, doubling_layers
from mnemoscope.systems.k_hop.tasks import KHop
from tests.support import seeded

SIZES = [
    {},
    {"cyclic": True},
    {"n_functions": 8, "hops": (1, 2, 4, 8), "n_symbols": 5},
    {"n_functions": 3, "hops": (1, 2)},
    {"n_functions": 1, "hops": (1,)},
]


def sample(n=200, **fields):
    task = KHop(**fields).for_seed(3)
    return task, task.sample(n, split="train", generator=seeded())


@torch.no_grad()
def right(task, batch, **options):
    """Probability of the answer at every query, by number of hops."""
    given = doubling(task, **options)(batch.inputs).softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    return {f"hops_{hops}": given[batch.latents["hops"] == hops] for hops in task.hops}


@pytest.mark.parametrize("fields", SIZES, ids=str)
def test_every_query_is_answered(fields):
    task, batch = sample(**fields)
    assert min(float(values.min()) for values in right(task, batch).values()) > 1 - 1e-6
    assert doubling(task).cfg.n_layers == doubling_layers(task.hops[-1]) == math.log2(task.hops[-1]) + 1


def test_the_hidden_permutations_are_in_its_weights():
    batch = sample()[1]
    other = doubling(KHop(hidden_seed=4))
    with torch.no_grad():
        given = other(batch.inputs).argmax(-1)
    assert 0.1 < float((given == batch.targets)[batch.scored].float().mean()) < 0.5


def test_stopped_early_it_answers_shorter_queries_only():
    task, batch = sample()
    found = right(task, batch, reached=2)
    assert float(found["hops_1"].min()) > 1 - 1e-6
    assert float(found["hops_2"].min()) > 1 - 1e-6
    assert float(found["hops_4"].mean()) < 0.5


def test_who_attends_where():
    task, batch = sample()
    model, latents = doubling(task), batch.latents
    rows = torch.arange(len(batch))
    asks_for_four = latents["hops"][:, -1] == 4
    for layer in range(3):
        pattern = layer_attention(model, layer, batch)[:, 0, -1]
        if layer == 0:
            assert float(pattern[rows, latents["at_1"][:, -1]].min()) > 1 - 1e-6
            continue
        symbol = latents[f"after_{2 ** (layer - 1)}"][:, -1]
        expected = 2 ** (layer - 1) * task.n_symbols + symbol  # the place of the function ahead, not yet its hidden one
        assert float(pattern[rows, expected.clamp(min=0)][asks_for_four].min()) > 1 - 1e-6
        stays = pattern[:, task.n_shown :] * (batch.inputs[:, task.n_shown :] == batch.inputs[:, -1:])
        assert float(stays.sum(1)[latents["hops"][:, -1] == 1].min()) > 1 - 1e-6


def test_places_compose_too():
    task, batch = sample()
    _, cache = doubling(task).run_with_cache(batch.inputs)
    block = doubling_circuit(task).dims["hop2"]
    found = cache["blocks.1.hook_resid_post"][:, : 3 * 4, block]
    hidden = task.hidden()
    place = torch.arange(12)
    leads = place // 4 * 4 + hidden[place // 4, place % 4]
    assert torch.equal(found.argmax(-1), batch.latents["after_2"][:, leads])


def test_other_numbers_of_hops_are_refused():
    with pytest.raises(InputError, match="powers of two"):
        doubling(KHop(hops=(1, 3), hidden_seed=0))
