"""T20 and T24: what order is good for."""

import jaxtyping
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.subject import Subject
from mnemoscope.systems.tiny_recall.claims.order import T20, T24, blindness, reading
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model
from tests.systems.on_trial import on, trouble, verdict

ORDERED = PermutationLookup(shuffle_x=False)


@pytest.mark.parametrize("claim", [T20, T24, *T24.rivals], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


def test_a_model_without_positions_is_blind():
    found = blindness(on(random_model(positions=False), PermutationLookup(repeat_ratio=0.3)))
    assert found["effect"] < 1e-5
    assert verdict(T20, found).outcome == "SUPPORTED"


def test_elimination_sees_which_of_a_pair_is_y():
    found = blindness(on(elimination_only(), PermutationLookup(repeat_ratio=0.3)))
    # where the unused value is an earlier x, it is ruled out once it stands in the place of y
    assert found["effect"] == pytest.approx(1, abs=1e-3)
    assert (found["elimination"], found["recall"]) == (1, 0)
    assert verdict(T20, found).outcome == "REFUTED"
    one_exception = [*[found | {"effect": 0.0}] * 15, found]
    assert verdict(T20, one_exception).outcome == "REFUTED"


def always_one():
    """A model that answers 1, whatever it reads."""
    model = elimination_only()
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
        model.b_U[1] = 1.0
    return model


def test_an_answer_without_reading_by_hand():
    found = reading(on(always_one(), ORDERED))
    last = ORDERED.for_seed(0).mappings("test")[:, -1]  # x5 is 5
    assert found["effect"] == found["own_order"] == pytest.approx(float((last == 1).double().mean()))
    assert found["shuffled"] == pytest.approx(1 / 5)  # every x comes last equally often
    assert verdict(T24, found).outcome == "SUPPORTED"
    assert {verdict(rival, found).outcome for rival in T24.rivals} == {"REFUTED"}


def test_a_model_that_reads_is_refuted():
    found = reading(on(elimination_only(), ORDERED))
    assert verdict(T24, found).outcome == "REFUTED"
    assert {verdict(rival, found).outcome for rival in T24.rivals} == {"SUPPORTED"}


def test_reading_in_its_own_order_only_is_no_ignoring_of_x():
    found = {"effect": 1.0, "own_order": 1.0, "shuffled": 0.3}
    assert {claim.id: verdict(claim, found).outcome for claim in T24.rivals} == {
        "T24-reads": "SUPPORTED",
        "T24-ignores-x": "REFUTED",
    }


def test_another_task_is_refused():
    jaxtyping.config.update("jaxtyping_disable", True)  # which would notice it earlier
    try:
        with pytest.raises(InputError, match="the task must be permutation lookup"):
            reading(Subject(model=elimination_only(), task=None, seed=0))  # pyright: ignore[reportArgumentType]
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
