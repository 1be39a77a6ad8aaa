import numpy as np
import pytest

from mnemoscope import InputError
from mnemoscope.systems.retrieval.claim_parts import partial_losses
from mnemoscope.systems.retrieval.claims.depth import COUNTED, DEPTHS, R1_MODELS, R3, by_depth
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.tasks import Retrieval
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, verdict
from tests.systems.planting import misbehaving


def errors(*each):
    """Pairs of errors by depth, of 64 sequences: fewer with the same error could not show it to be above a half."""
    pairs = [dict(zip(("x1", "x2"), (np.full(64, error) for error in pair), strict=True)) for pair in each]
    return dict(zip(DEPTHS, pairs, strict=True))


def test_the_count_is_two_layers_and_three():
    assert COUNTED == {"x1": 2, "x2": 3}


def test_partial_losses_of_a_model_that_follows_one_step():
    """What it does not answer is zeros, whose error is the variance of a symbol."""
    found = partial_losses(on(chain_follower(2, reached=1), Retrieval(n_steps=2)))
    assert found["x1"] < 1e-3
    assert found["x2"] == pytest.approx(1, abs=0.05)


def test_the_effects_of_one_seed():
    found = by_depth(errors((0.8, 0.75), (0.1, 0.7), (0.05, 0.49)))
    assert found.pop("below_reach").tolist() == [0.7] * 64
    assert found == {"more": 1, "miscounted": 0, "layers_x1": 2, "layers_x2": 3}
    never = by_depth(errors((0.8, 0.75), (0.7, 0.7), (0.3, 0.5)))
    assert (never["layers_x1"], never["layers_x2"], never["miscounted"]) == (3, 4, 2)


def test_what_decides_them():
    def outcomes(*each):
        found = by_depth(errors(*each))
        return [verdict(claim, found).outcome for claim in (R3, *R3.rivals, R1_MODELS)]

    assert outcomes((0.8, 0.75), (0.1, 0.7), (0.05, 0.1)) == ["SUPPORTED"] * 3
    assert outcomes((0.8, 0.75), (0.1, 0.1), (0.05, 0.1)) == ["REFUTED", "REFUTED", "REFUTED"]
    assert outcomes((0.8, 0.75), (0.7, 0.7), (0.1, 0.7)) == ["SUPPORTED", "REFUTED", "SUPPORTED"]


@pytest.mark.parametrize("claim", [R3, R1_MODELS], ids=lambda claim: claim.id)
def test_their_controls_behave(claim):
    assert misbehaving(claim) == {}


def test_a_model_of_another_task_is_refused():
    with pytest.raises(InputError, match="about the retrieval problem"):
        partial_losses(on(chain_follower(2), PermutationLookup()))
