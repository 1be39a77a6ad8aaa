"""The constructed chain follower answers fresh sequences, and attends where it says."""

from functools import cache

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.retrieval.constructed import chain_follower, chain_follower_circuit, chain_follower_paths
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import seeded

follower = cache(chain_follower)
BOTH = pytest.mark.parametrize("positions", [False, True], ids=["codes", "positions"])


def sample(n=500, **fields):
    task = Retrieval(**fields)
    return task, task.sample(n, split="test", generator=seeded(3))


def by_part(outputs, batch):
    squares = (outputs - batch.targets).square()[batch.scored]
    return [float(squares[:, part].mean()) for part in batch.parts.values()]


@torch.no_grad()
def errors(model, batch):
    return by_part(model(batch.inputs), batch)


def at(batch, place):
    """Where a place of the chain of every position lies, and which positions are of that place in some chain."""
    rows = (batch.latents["place"] == place) & (batch.latents["chain"] >= 0)
    return batch.latents[f"at_{place}"], rows


@BOTH
@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_every_part_of_fresh_sequences_is_answered(n_steps, positions):
    _, batch = sample(n_steps=n_steps)
    model = follower(n_steps, positions=positions)
    assert max(errors(model, batch)) < 0.01
    assert model.cfg.n_layers == n_steps + (1 if positions else 2)


@BOTH
@pytest.mark.parametrize("kind", ["exchange", "rewire"])
def test_changed_pairs_are_followed(kind, positions):
    task, batch = sample()
    corrupted = task.corrupt(batch, kind=kind, generator=seeded(1))
    assert task.pair_report(batch, corrupted)["answer_changed"] == 1
    assert max(errors(follower(3, positions=positions), corrupted)) < 0.01


def test_steps_may_stand_backwards_and_tasks_may_be_larger():
    _, backward = sample(order="backward")
    assert max(errors(follower(3), backward)) < 0.01
    _, larger = sample(50, n_steps=5, n_chains=6, d_symbol=8)
    assert max(errors(follower(5, n_chains=6, d_symbol=8), larger)) < 0.01


@BOTH
@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_attention_goes_along_the_stated_paths(n_steps, positions):
    _, batch = sample(n_steps=n_steps)
    paths = chain_follower_paths(n_steps, positions=positions)
    _, cache = follower(n_steps, positions=positions).run_with_cache(
        batch.inputs, names_filter=lambda name: name.endswith("hook_pattern")
    )
    assert len(paths) == len(set(paths)) == 2 * n_steps
    for layer, head, place, to in paths:
        pattern = cache["pattern", layer][:, head]
        keys, rows = at(batch, to)[0], at(batch, place)[1]
        share = pattern.gather(-1, keys.clamp(min=0)[..., None])[..., 0][rows]
        assert len(share) == 500 * 4
        assert share.mean() > 0.999, (layer, place, to)


@BOTH
def test_the_stated_paths_are_enough(positions):
    _, batch = sample(200)
    model = follower(3, positions=positions)

    def only(layer):
        wanted = torch.eye(batch.inputs.shape[1]).repeat(len(batch), 1, 1)
        for _, _, place, to in (path for path in chain_follower_paths(3, positions=positions) if path[0] == layer):
            keys, rows = at(batch, to)[0], at(batch, place)[1]
            wanted[rows] = torch.nn.functional.one_hot(keys[rows], wanted.shape[-1]).float()
        return lambda pattern, hook: wanted[:, None].expand_as(pattern)

    with torch.no_grad():
        outputs = model.run_with_hooks(
            batch.inputs,
            fwd_hooks=[(f"blocks.{layer}.attn.hook_pattern", only(layer)) for layer in range(model.cfg.n_layers)],
        )
    assert max(by_part(outputs, batch)) < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("reached", [0, 1, 2])
def test_it_may_stop_on_the_way(reached):
    _, batch = sample(1000)
    found = errors(follower(3, reached=reached), batch)
    assert found[:reached] == pytest.approx([0] * reached, abs=0.01)
    assert found[reached:] == pytest.approx([1] * (3 - reached), abs=0.1)
    assert len(chain_follower_paths(3, reached=reached)) == 3 + reached


def test_names_fit_the_model():
    circuit, model = chain_follower_circuit(2), follower(2)
    assert circuit.width == model.cfg.d_model
    assert circuit.heads == {"pair": (1, 0), "hop1": (2, 0), "hop2": (3, 0)}
    assert chain_follower_paths(2) == ((1, 0, 2, 1), (1, 0, 4, 3), (2, 0, 0, 2), (3, 0, 0, 4))
    with pytest.raises(InputError, match="reached"):
        chain_follower(2, reached=3)
    with pytest.raises(InputError, match="reached"):
        chain_follower_paths(2, reached=-1)
