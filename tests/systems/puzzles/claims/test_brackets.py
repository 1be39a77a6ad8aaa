"""P15 and P16: their controls, what is measured of hand-set models, and of the published one."""

import pytest
import torch

from mnemoscope import InputError
from mnemoscope.claims import EFFECT
from mnemoscope.models import load_original
from mnemoscope.systems.puzzles.analyses.brackets import accuracies
from mnemoscope.systems.puzzles.claims import brackets
from mnemoscope.systems.puzzles.constructed.brackets import DIRECT, DOUBLE, PREFIX, bracket_counter
from mnemoscope.systems.puzzles.tasks.brackets import Brackets
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.originals import original_file
from tests.systems.on_trial import on
from tests.systems.planting import misbehaving


@pytest.mark.parametrize("claim", [brackets.P15, brackets.P16], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


@pytest.mark.parametrize("circuit", [DOUBLE, DIRECT, PREFIX], ids=str)
def test_hand_set_models_know_all_kinds(circuit):
    assert set(accuracies(on(bracket_counter(circuit), Brackets())).values()) == {1.0}


def test_the_path_of_a_wrong_total():
    double, direct = (brackets.measure_path(on(bracket_counter(each), Brackets())) for each in (DOUBLE, DIRECT))
    assert [double[name] for name in ("suffix", "opposite", "moved", "early")] == pytest.approx([1, -1, 1, 0], abs=0.01)
    assert double["yes_no"] > 0.9 > 0.6 > double["before"]
    assert [direct[name] for name in ("moved", "early", "moved negative")] == pytest.approx([0, 1, 1], abs=0.01)


def test_other_tasks_are_refused():
    with pytest.raises(InputError, match="measures models of brackets; got a model of"):
        brackets.measure_path(on(bracket_counter(), PermutationLookup()))


def test_the_published_model_calls_a_nested_sequence_balanced():
    subject = load_original(original_file("brackets"), "brackets")
    batch = Brackets().parse("(" * 15 + ")" * 15 + ")(" + "((((" + "))))")
    assert batch.latents["kind"].item() == 2
    with torch.no_grad():
        odds = subject.model(batch.inputs)[0, 0].softmax(-1)
    assert round(odds[1].item(), 6) == 0.999856


def test_the_published_split_is_no_double_dissociation():
    """Removing 2.1 costs negative elevations; wrong totals need neither head of the last layer."""
    found = brackets.measure_split(load_original(original_file("brackets"), "brackets"))
    assert found["L2H1 negative"] > 0.2
    assert found["L2H0 total"] < 0.01
    assert found["both heads total"] < 0.1
    assert found[EFFECT] < 0 < found["one_fault"]
