"""Hand-set models: right on every fact, and their parts store what they are said to store."""

import numpy as np
import pytest
import torch

from mnemoscope import InputError
from mnemoscope.systems.factual_recall.analyses import STORES, fact_memories, routes, split_loss, stores
from mnemoscope.systems.factual_recall.constructed import fact_halves, fact_store, fact_store_circuit
from mnemoscope.systems.factual_recall.tasks import FactualRecall
from tests.support import random_model, seeded

TASK = FactualRecall(n_subjects=6, n_relations=5, n_answers=4, n_noise=5, length=8, facts_seed=3)
ALL = TASK.every_fact(3, generator=seeded())


@pytest.mark.parametrize("by_attention", [None, 0, 2, 6])
def test_every_fact_is_known(by_attention):
    model = fact_store(TASK, by_attention=by_attention)
    assert float(split_loss(model, TASK, ALL).loss) < 1e-6


def test_every_fact_stands_there_once_then_again():
    latents = ALL.latents
    number = latents["subject"] * 5 + latents["relation"]
    assert number.tolist() == [*range(30)] * 3
    assert (ALL.targets[:, -1] == TASK.table()[latents["subject"], latents["relation"]]).all()
    assert not torch.equal(ALL.inputs[:30], ALL.inputs[30:60])


@pytest.mark.parametrize("removed", ["mean", "resample"])
@pytest.mark.parametrize(("by_attention", "store"), [(6, "attention"), (0, "mlp")])
def test_where_all_facts_are_stored_is_found(by_attention, store, removed):
    found = routes(fact_store(TASK, by_attention=by_attention), TASK, removed=removed, n_each=8)
    assert (found.accuracy.sel(route="both") == 1).all()
    assert float(stores(found).sel(store=store)) >= (1 if removed == "resample" else 0.8)
    assert float(found.accuracy.sel(route="neither").mean()) < 0.3


def test_facts_that_are_split_are_told_apart():
    found = routes(fact_store(TASK, by_attention=2), TASK, n_each=8)
    assert (found.accuracy.sel(route="attention", subject=slice(0, 2)) == 1).all()
    assert (found.accuracy.sel(route="mlp", subject=slice(2, None)) == 1).all()
    shares = stores(found)
    assert shares.store.values.tolist() == list(STORES)
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares.sel(store="attention")) == pytest.approx(2 / 6, abs=0.1)
    assert float(shares.sel(store=["mlp", "either"]).sum()) == pytest.approx(4 / 6, abs=0.1)


def test_facts_that_take_both_routes_are_seen():
    found = routes(fact_halves(TASK), TASK)
    assert (found.accuracy.sel(route="both") == 1).all()
    assert float(found.accuracy.sel(route="attention").mean()) < 0.5
    assert float(stores(found).sel(store="only both")) > 0.4
    recalled = fact_memories(fact_halves(TASK), TASK).recall
    assert recalled.sel(memory="both") == 1
    assert recalled.sel(memory=["OV", "MLP"]).values.tolist() == [0, 0], "answers tie"


def test_attention_alone_has_no_other_route():
    model = fact_store(TASK)
    assert model.cfg.attn_only
    found = routes(model, TASK).accuracy
    assert (found.sel(route="attention") == found.sel(route="both")).all()
    assert (found.sel(route="mlp") == found.sel(route="neither")).all()


def test_what_the_weights_recall():
    attention, mlp = (fact_memories(fact_store(TASK, by_attention=n), TASK).recall for n in (6, 0))
    assert attention.memory.values.tolist() == ["OV"]
    assert float(attention.sel(memory="OV")) == 1
    assert mlp.sel(memory=["MLP", "both"]).values.tolist() == [1, 1]
    assert float(mlp.sel(memory="OV")) == 0, "all answers tie"
    split = fact_memories(fact_store(TASK, by_attention=3), TASK).recall
    assert split.sel(memory="both") == 1
    assert split.sel(memory=["OV", "MLP"]).values.tolist() == pytest.approx([0.5, 0.5])


def test_an_untrained_model_recalls_nothing():
    model = random_model(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, normalization="none")
    found = fact_memories(model, TASK)
    assert np.all(found.recall < 0.3)
    assert float(found.chance[0]) == pytest.approx(1 / 20)


def test_the_circuit_names_every_neuron():
    circuit = fact_store_circuit(TASK, by_attention=4)
    assert set(circuit.neurons) == {(s, r) for s in (4, 5) for r in range(5)}
    model = fact_store(TASK, by_attention=4)
    (neuron,) = circuit.neurons[5, 2]
    value = model.blocks[0].mlp.W_out[neuron, circuit.dims["answer"]]
    assert int(value.argmax()) == int(TASK.table()[5, 2])


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(InputError, match="from 0 to 6"):
        fact_store(TASK, by_attention=7)
    deep = random_model(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, n_layers=2)
    with pytest.raises(InputError, match="one layer"):
        routes(deep, TASK)
    with pytest.raises(InputError, match="one layer"):
        fact_memories(deep, TASK)
    with pytest.raises(InputError, match="without normalisation"):
        fact_memories(random_model(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx), TASK)
    with pytest.raises(InputError, match="enough"):
        stores(routes(fact_store(TASK), TASK, n_each=1), enough=2)
