"""T22: recall overrides elimination on the conflict set."""

from functools import partial

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.claims.override import CLAIM, measure, unused_above_wrong
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.planting import effects_of, misbehaving, outcomes, verdict

TASK = PermutationLookup(repeat_ratio=0.3)


def plant(make):
    return set_by_hand("v3", make, TASK)


@pytest.mark.parametrize("kind", ["mean", "resample"])
def test_controls_behave(kind):
    assert misbehaving(CLAIM, kind=kind) == {}


def test_one_prompt_by_hand():
    log_probs = torch.tensor([[9.0, 1.0, 7.0, 3.0, -1.0, 4.0]])  # token 0 is no answer, 2 is recalled, 5 unused
    found = unused_above_wrong(log_probs, torch.tensor([5]), torch.tensor([2]), range(1, 6))
    assert found.item() == pytest.approx(4 - (1 + 3 - 1) / 3)


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_planted_is_read_whatever_the_heads_number(number):
    subject = plant(partial(dissociated, margin=7.0))(0)["v3"]
    if number:
        attention = subject.model.blocks[0].attn
        with torch.no_grad():
            for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
                weight.copy_(weight.flip(0))
    assert measure(subject) == pytest.approx({"gate": 1, "present": 7, "override": 1, "intact": 0}, abs=1e-4)


def test_verdicts_on_planted_circuits():
    assert outcomes(CLAIM, plant(dissociated)) == {"T22": "SUPPORTED", "T22-gone": "REFUTED"}
    assert outcomes(CLAIM, plant(partial(dissociated, margin=0.4))) == {"T22": "REFUTED", "T22-gone": "SUPPORTED"}
    kept = effects_of(CLAIM, plant(dissociated)) | {"override": 0.1}
    assert verdict(CLAIM, kept).outcome == "REFUTED"


def test_models_that_do_not_recall_are_not_judged():
    for planting in (plant(elimination_only), untrained(CLAIM.units)):
        assert set(outcomes(CLAIM, planting).values()) == {"NOT_APPLICABLE"}


def test_other_numbers_of_heads_are_refused():
    with pytest.raises(InputError, match="two heads in all"):
        measure(plant(two_layer_recall)(0)["v3"])
