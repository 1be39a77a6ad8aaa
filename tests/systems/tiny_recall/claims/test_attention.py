"""T11 and T12: where the two heads look."""

import numpy as np
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.claims.attention import T11, T12, binding, scanning
from mnemoscope.systems.tiny_recall.constructed import dissociated, local_binding, shared_store, twin_elimination
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, trouble, verdict

TASK = PermutationLookup(repeat_ratio=0.3)


def scatterbrained():
    """Both skills exactly, with an elimination head that attends to all keys alike.

    Without a repeat every value stands among the x once, and what is written about all values alike says nothing.
    """
    model = dissociated()
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0] = 0
    return model


@pytest.mark.parametrize("claim", [T11, T12, *T11.rivals, *T12.rivals], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


@pytest.mark.parametrize("sequences", T11.factors["sequences"])
def test_controls_behave_on_a_subgroup(sequences):
    assert trouble(T11, sequences=sequences) is None


def test_another_elimination_head_is_refuted():
    found = scanning(on(scatterbrained(), TASK))
    assert found["gate"] == 1
    assert found["effect"] == pytest.approx(np.mean([1 / 3, 2 / 5, 3 / 7, 4 / 9]))
    assert found["last"] == pytest.approx(4 / 9)
    assert verdict(T11, found).outcome == "REFUTED"
    right = scanning(on(dissociated(), TASK))
    assert verdict(T11, right).outcome == "SUPPORTED"


def test_another_recall_head_is_refuted_and_its_rival_found():
    found = binding(on(shared_store(), TASK))
    assert found["gate"] == 1
    outcomes = {claim.id: verdict(claim, found).outcome for claim in (T12, *T12.rivals)}
    assert outcomes == {
        "T12": "REFUTED",
        "T12-same-x": "SUPPORTED",
        "T12-after-same-x": "REFUTED",
        "T12-slot": "REFUTED",
        "T12-conditional": "SUPPORTED",
    }


def test_local_binding_by_hand():
    found = binding(on(local_binding(), TASK))
    expected = {"effect": 1, "self": 1, "from x2": 1, "from x5": 1, "same_x": 0, "slot": 1, "conditional": 0}
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-6), name
    assert found["after_same_x"] == pytest.approx(1 / 4)  # of the slots that repeat, the y just before is one in four
    assert verdict(T12, found | {"gate": 1.0}).outcome == "SUPPORTED"


def with_even_attention_from(positions):
    """Local binding, with attention that is even from some positions."""
    model = local_binding()
    with torch.no_grad():
        model.blocks[0].attn.W_Q[1, model.W_pos[positions].argmax(-1)] = 0
    return model


def test_what_y_attends_to_does_not_count():
    found = binding(on(with_even_attention_from(torch.arange(1, 9, 2)), TASK))
    assert found["self"] == pytest.approx(np.mean([1 / 2, 1 / 4, 1 / 6, 1 / 8]))
    assert found["effect"] == pytest.approx(1)
    assert verdict(T12, found | {"gate": 1.0}).outcome == "SUPPORTED"


def test_one_slot_without_binding_is_enough():
    found = binding(on(with_even_attention_from(torch.tensor([6])), TASK))  # x4, of seven keys
    assert [found[f"from x{slot}"] for slot in range(2, 6)] == pytest.approx([1, 1, 1 / 7, 1])
    assert found["effect"] == pytest.approx(1 / 7)
    assert verdict(T12, found | {"gate": 1.0}).outcome == "REFUTED"


def test_a_head_that_looks_at_all_earlier_y_is_told_from_one_that_binds():
    found = binding(on(twin_elimination(), TASK))
    assert [found[f"from x{slot}"] for slot in range(2, 6)] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_another_subgroup_is_refused():
    with pytest.raises(InputError, match="sequences must be one of: all, fresh, repeat"):
        scanning(on(local_binding(), TASK), sequences="conflict")
