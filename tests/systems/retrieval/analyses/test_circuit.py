"""The circuit that was built in is found, and in an untrained model there is none."""

import pytest
import torch

from mnemoscope import InputError, preset
from mnemoscope.models.building import build_untrained
from mnemoscope.systems.retrieval.analyses import (
    ELSEWHERE,
    chain_attention,
    chain_circuit,
    path_table,
    strongest,
    within_chain,
)
from mnemoscope.systems.retrieval.constructed import chain_follower, chain_follower_paths
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.support import seeded

TASK = Retrieval(n_steps=2)


@pytest.fixture(scope="module")
def batch():
    return TASK.sample(128, split="test", generator=seeded())


@pytest.fixture(scope="module")
def built():
    return chain_follower(2)


def test_attention_between_places_adds_up_to_one_and_shows_the_built_paths(built, batch):
    attention = chain_attention(built, batch)
    assert attention.sum("to").values == pytest.approx(1)
    for layer, head, place, to in chain_follower_paths(2):
        assert float(attention.sel(layer=layer, head=head, place=place, to=str(to))) > 0.99
        assert (place, to) in strongest(attention.sel(layer=layer, head=head), 0.5)


def test_even_attention_goes_to_a_place_by_how_many_positions_there_are(batch):
    """Of the queries, which stand last: the first sees 17 positions, the last 20; each chain has one at each place."""
    model = build_untrained(preset("retrieval-2-4-layers"))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
    attention = chain_attention(model, batch).sel(layer=0, head=0, place=0)
    expected = sum(1 / n for n in range(17, 21)) / 4
    assert float(attention.sel(to="1")) == pytest.approx(expected, rel=1e-5)
    assert float(attention.sel(to=ELSEWHERE)) == pytest.approx(1 - 5 * expected, rel=1e-5)


def test_a_path_is_silent_about_other_places(batch):
    pattern = within_chain(0, 4).pattern(batch)
    query = batch.latents["place"] == 0
    assert pattern[query].sum(-1).tolist() == [1] * int(query.sum())
    assert pattern[~query].isnan().all()
    key = pattern[query].argmax(-1)
    assert torch.equal(key, batch.latents["at_4"][query])
    assert within_chain(0, 4) is within_chain(0, 4)


def test_the_built_circuit_is_found(built, batch):
    circuit = chain_circuit(built, batch)
    assert bool(circuit.pruned.holds)
    assert float(circuit.pruned.loss.sel(skill="all")) < 0.01
    rise = path_table(circuit, built, batch).rise.sel(skill="all")
    found = set(rise.stack(path=rise.dims).dropna("path").path.values.tolist())
    assert found == set(chain_follower_paths(2)), "and no other is left"
    for path in chain_follower_paths(2):
        if path[2] == 0:
            assert float(rise[path]) > 0.2, "queries fetch what is due; seconds only let themselves be found"


def test_a_batch_of_another_task_is_refused():
    other = preset("v3").task.for_seed(0).sample(3, split="test", generator=seeded())
    with pytest.raises(InputError, match="must come from the retrieval problem"):
        chain_attention(build_untrained(preset("retrieval-2-4-layers")), other)
