"""R5-alone and R6: a circuit that is chosen together, and the heads that matter alone, on hand-set models."""

import pytest
import torch

from mnemoscope import generator
from mnemoscope.core.patterns import identity, uniform
from mnemoscope.systems.retrieval import joint_circuits
from mnemoscope.systems.retrieval.claims.circuits import R5_ALONE, R6
from mnemoscope.systems.retrieval.constructed import chain_follower, chain_follower_paths
from mnemoscope.systems.retrieval.joint_circuits import (
    Choice,
    PatternErrors,
    choose_together,
    matter_alone,
    menu,
    paths_of,
    prune,
    take_apart_together,
    without,
)
from mnemoscope.systems.retrieval.tasks import Retrieval
from tests.systems.on_trial import on, verdict

TASK = Retrieval(n_steps=1)


@pytest.fixture(scope="module")
def subject():
    return on(chain_follower(1, positions=True), TASK)


@pytest.fixture(scope="module")
def at(subject):
    batch = TASK.sample(32, split="test", generator=generator(0, "circuit"))
    return PatternErrors(subject.model, subject, batch)


def test_patterns_are_set_and_nothing_else(subject, at):
    assert at({}) == at.clean < 0.01
    even = {(0, 0): Choice(places=(), rest=uniform()), (1, 0): Choice(places=(), rest=uniform())}
    assert at.rise(even) > 0.3
    (layer, head, place, to) = chain_follower_paths(1, positions=True)[-1]
    assert at.rise({(layer, head): Choice(places=((place, to),), rest=identity())}) == pytest.approx(0, abs=0.01)
    assert at({}) == at.clean, "hooks are gone"


@pytest.mark.parametrize("others", ["menu", "mean"])
def test_the_circuit_that_was_built_in_is_chosen_together(subject, at, others):
    batch = TASK.sample(32, split="test", generator=generator(0, "circuit"))
    menus = menu(subject.model, batch, others)
    assert list(menus) == [(1, 0), (0, 0)], "from the last layer on"
    circuit = choose_together(at, menus)
    assert ((1, 0), (0, 2)) in paths_of(circuit)
    assert at.rise(circuit) < 0.02
    error, left = without(at, circuit, ((1, 0), (0, 2)))
    assert error > at.clean + 0.3
    assert ((1, 0), (0, 2)) not in paths_of(left)
    assert set(paths_of(prune(at, circuit))) <= set(paths_of(circuit))


def test_what_is_measured_for_r6(subject):
    found = take_apart_together(subject)
    assert found["kept"] < 0.05
    assert found["at_query"] > 0.3
    assert found["gate"] < 0.01
    assert found["heads"] <= 2


def test_both_heads_of_the_chain_follower_are_heads_that_count(subject):
    found = matter_alone(subject)
    assert found["share"] == found["heads"] / 2
    assert found["largest"] > 0.3
    assert matter_alone(subject, matters=100.0)["heads"] == 0


def test_budgets_add_up(monkeypatch, at):
    """Two paths that may be dropped one by one, but not both: the error of the whole circuit decides."""
    costs = {((0, 0), (0, 2)): 0.03, ((0, 0), (2, 1)): 0.02}

    class Summing:
        clean = 0.0

        def __call__(self, circuit):
            kept = {(head, place) for head, choice in circuit.items() for place in choice.places}
            return sum(cost for path, cost in costs.items() if path not in kept)

    circuit = {(0, 0): Choice(places=((0, 2), (2, 1)), rest=uniform())}
    monkeypatch.setattr(joint_circuits, "BUDGET", 0.04)
    assert paths_of(prune(Summing(), circuit)) == [((0, 0), (0, 2))]


def test_what_decides():
    fine = {"kept": 0.04, "removed": 0.2, "at_query": 0.2, "elsewhere": 0.0, "gate": 0.01}
    assert verdict(R6, fine).outcome == "SUPPORTED"
    assert verdict(R6, {**fine, "kept": 0.06}).outcome == "REFUTED"
    assert verdict(R6, {**fine, "removed": 0.02}).outcome == "REFUTED"
    few, many, none = ({"share": n / 48, "heads": float(n), "gate": 0.01} for n in (8, 32, 0))
    assert [verdict(each, few).outcome for each in (R5_ALONE, *R5_ALONE.rivals)] == ["SUPPORTED", "REFUTED"]
    assert [verdict(each, many).outcome for each in (R5_ALONE, *R5_ALONE.rivals)] == ["REFUTED", "SUPPORTED"]
    assert verdict(R5_ALONE, none).outcome == "REFUTED", "where nothing is known no head matters"
    assert torch.is_grad_enabled()
