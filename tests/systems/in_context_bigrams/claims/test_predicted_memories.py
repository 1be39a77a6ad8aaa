"""B4 and B13: whether matrices become the predicted memories, and stay so."""

import pytest
import torch

from mnemoscope.claims.claim import GATE
from mnemoscope.core.errors import InputError
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.in_context_bigrams.claims.predicted_memories import (
    ALONE,
    B4,
    B13,
    TASK,
    WITH_W_F,
    deviations,
    drifting,
    holding,
    measure,
)
from mnemoscope.systems.in_context_bigrams.constructed import MEMORIES, induction_memories
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from tests.systems.on_trial import on, verdict
from tests.systems.planting import effects_of, misbehaving, outcomes

NAMES = ("output", "match", "previous_early", "previous_all")


def recalls(*values, gate=1.0):
    return {**dict(zip(NAMES, values, strict=True)), GATE: gate}


def test_controls_behave():
    assert misbehaving(B4) == {}
    assert misbehaving(B4, over="queries") == {}
    assert misbehaving(B13) == {}


def test_each_matrix_has_its_own_recall():
    """A memory that is left out is recalled by chance: 1 in 65, 5, 32 and 128."""
    found = {memory: effects_of(B4, holding(*set(MEMORIES) - {memory})) for memory in MEMORIES}
    assert all(found["copied token"][name] == 1 for name in NAMES[1:])
    assert found["copied token"]["output"] < 0.2
    assert found["remapped copy"]["output"] == found["remapped copy"]["previous_all"] == 1
    assert found["remapped copy"]["match"] <= 0.8
    assert found["previous token"]["output"] == found["previous token"]["match"] == 1
    assert max(found["previous token"][name] for name in NAMES[2:]) < 0.2


@pytest.fixture
def planted():
    """A task of four triggers and eight positions, the sums for it, and the score of a right key."""
    task = InContextBigrams(length=8, triggers="fixed", n_triggers=4)
    model = induction_memories(task.d_vocab, 8, tokens=task.fixed_triggers)
    return task, model, float((model.W_pos[6] @ model.blocks[0].attn.W_K[0] @ model.W_pos[7]).detach())


def unit_product(key, query):
    """A matrix whose score for this key and query is 1."""
    return torch.outer(key, query) / (key.norm() * query.norm()) ** 2


@torch.no_grad()
def test_shares_by_hand(planted):
    task, model, score = planted
    first, second = (block.attn for block in model.blocks)
    first.W_K[0] += 3 * score * unit_product(model.W_pos[1], model.W_pos[7])  # position 7 finds 1 in place of 6
    trigger = model.W_E[task.fixed_triggers[0]]
    second.W_K[0] -= 3 * score * unit_product(trigger @ first.W_V[0] @ first.W_O[0], trigger)  # and one shuns its copy
    found = measure(on(model, task))
    assert found["previous_all"] == pytest.approx(6 / 7)
    assert found["previous_early"] == 1  # of 8 positions a quarter, but three at least
    assert found["match"] == 0.75
    assert found["output"] == 1


@torch.no_grad()
def test_who_competes_is_about_the_previous_token(planted):
    task, model, score = planted
    for key in model.W_pos:  # position 5 likes every key, so that it is the best query of all
        model.blocks[0].attn.W_K[0] += 3 * score * unit_product(key, model.W_pos[5])
    keys, queries = (measure(on(model, task), over=over) for over in ("keys", "queries"))
    assert keys["previous_all"] >= 6 / 7
    assert queries["previous_all"] == pytest.approx(1 / 7)
    assert keys["match"] == queries["match"]
    assert keys["output"] == queries["output"]


@pytest.mark.parametrize(
    ("memories", "expected"),
    [
        (MEMORIES, ["SUPPORTED", "SUPPORTED"]),
        (("remapped copy", "copied token"), ["NOT_APPLICABLE", "NOT_APPLICABLE"]),
        ((), ["NOT_APPLICABLE", "NOT_APPLICABLE"]),
    ],
)
def test_verdicts_on_planted_models(memories, expected):
    assert list(outcomes(B4, holding(*memories)).values()) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.0, 1.0, 1.0, 0.4), ["SUPPORTED", "REFUTED"]),
        ((1.0, 0.8, 1.0, 1.0), ["REFUTED", "SUPPORTED"]),
        ((0.9, 1.0, 1.0, 0.9), ["INCONCLUSIVE", "INCONCLUSIVE"]),
    ],
)
def test_verdicts_on_planted_recalls(values, expected):
    assert [verdict(claim, recalls(*values)).outcome for claim in (B4, *B4.rivals)] == expected
    assert verdict(B4, recalls(*values, gate=0.7)).outcome == "NOT_APPLICABLE"


def test_untrained_models_are_not_judged():
    found = measure(untrained(ALONE)(0)["memories"])
    assert max(found[name] for name in NAMES if name != "match") < 0.2
    assert verdict(B4, found).outcome == "NOT_APPLICABLE"


def test_deviations_by_hand():
    """Between the quarters it falls; 625 to 1,250 and 1,875 to 2,500 of 2,500 steps are compared."""
    found = deviations(drifting(0.25, 0.5)(0)["memories-all"])
    assert found["output_deviates"] == pytest.approx(0.25)
    assert found["ff_deviates"] == pytest.approx(0.5)
    assert found["output in the last quarter"] == pytest.approx(0.75)
    assert found["ff in the second quarter"] == pytest.approx(0.2)
    assert (found["output at its best"], found["ff at its best"]) == (1.0, pytest.approx(0.2))
    closer = deviations(drifting(0.0, -0.1)(0)["memories-all"])
    assert closer["ff_deviates"] == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ({"output": 0.2, "ff": 0.5}, ["SUPPORTED", "REFUTED"]),
        ({"output": 0.2, "ff": 0.0}, ["REFUTED", "SUPPORTED"]),
        ({"output": 0.0, "ff": 0.5}, ["REFUTED", "REFUTED"]),
        ({"output": 0.05, "ff": 0.05}, ["INCONCLUSIVE", "INCONCLUSIVE"]),
    ],
)
def test_verdicts_on_planted_deviations(by, expected):
    assert list(outcomes(B13, drifting(**by)).values()) == expected


def test_a_run_that_was_not_tracked_is_refused():
    with pytest.raises(InputError, match="mnemoscope evaluate --checkpoints"):
        deviations(untrained(WITH_W_F)(0)["memories-all"])


def test_the_planted_memories_do_the_task_of_the_unit():
    task = ALONE["memories"].spec(0).task
    assert isinstance(task, InContextBigrams)
    assert (task.length, task.fixed_triggers) == (TASK.length, TASK.fixed_triggers)
    assert effects_of(B4, holding(*MEMORIES))[GATE] > 0.9
