"""T20 and T24: what order is good for."""

import jaxtyping
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.tiny_recall.claim_parts import REPEATS
from mnemoscope.systems.tiny_recall.claims.order import EXACT_COST, T20, T24, blindness, most_frequent, reading
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model
from tests.systems.on_trial import on, trouble, verdict

ORDERED = PermutationLookup(shuffle_x=False)


@pytest.mark.parametrize("claim", [T20, T24, *T24.rivals], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


def losses(blind, exact=0.575, v3=0.01):
    return T20.compare({"v3-no-positions": {"loss": blind, "exact": exact}, "v3": {"loss": v3, "exact": exact}})


@pytest.mark.parametrize(
    ("loss", "outcome"), [(0.6, "SUPPORTED"), (0.63, "SUPPORTED"), (0.65, "REFUTED"), (0.3, "REFUTED")]
)
def test_what_blindness_costs_decides_t20(loss, outcome):
    found = losses(loss)
    assert found["effect"] == pytest.approx(loss - 0.575)
    assert found["cost"] == pytest.approx(loss - 0.01)
    assert verdict(T20, found).outcome == outcome


def test_a_model_without_positions_is_blind():
    found = blindness(on(random_model(positions=False), REPEATS))
    assert found["change"] < 1e-5
    assert found["loss"] > found["exact"]


def test_a_model_that_sees_order_loses_nothing():
    found = blindness(on(dissociated(), REPEATS))
    assert found["loss"] < 0.01
    assert found["exact"] == pytest.approx(EXACT_COST, abs=0.001)


def test_elimination_sees_which_of_a_pair_is_y():
    found = blindness(on(elimination_only(), REPEATS))
    # where the unused value is an earlier x, it is ruled out once it stands in the place of y
    assert found["change"] == pytest.approx(1, abs=1e-3)
    assert (found["elimination"], found["recall"]) == (1, 0)
    # 10 logits below the unused value on every repeat, and nothing else
    assert found["loss"] == pytest.approx(0.3 * 10, rel=1e-3)


def always_one():
    """A model that answers 1, whatever it reads."""
    model = elimination_only()
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
        model.b_U[1] = 1.0
    return model


def test_an_answer_without_reading_by_hand():
    found = reading(on(always_one(), ORDERED))
    unseen, training = (ORDERED.for_seed(0).mappings(split)[:, -1] for split in ("test", "train"))  # x5 is 5
    assert found["effect"] == found["changed"] == 0
    assert found["own_order"] == pytest.approx(float((unseen == 1).double().mean()))
    assert found["shuffled"] == pytest.approx(1 / 5)  # every x comes last equally often
    most_frequent = max(int((training == value).sum()) for value in range(1, 6))
    assert found["gate"] == pytest.approx((int((training == 1).sum()) - most_frequent) / 96)
    found["gate"] = 0.0
    assert verdict(T24, found).outcome == "SUPPORTED"
    assert {verdict(rival, found).outcome for rival in T24.rivals} == {"REFUTED"}


def test_the_shortcut_passes_the_gate_by_nothing():
    (subject,) = most_frequent(0).values()
    assert reading(subject)["gate"] == 0
    assert T24.gate.passes([0.0, -1 / 96]).tolist() == [True, False]


def test_a_model_that_reads_is_refuted():
    found = reading(on(elimination_only(), ORDERED))
    assert found["effect"] == 1
    assert found["gate"] > 0.7
    assert verdict(T24, found).outcome == "REFUTED"
    assert {verdict(rival, found).outcome for rival in T24.rivals} == {"SUPPORTED"}


def test_reading_in_its_own_order_only_is_no_ignoring_of_x():
    found = {"effect": 1.0, "changed": 1.0, "own_order": 1.0, "shuffled": 0.3, "gate": 0.8}
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
