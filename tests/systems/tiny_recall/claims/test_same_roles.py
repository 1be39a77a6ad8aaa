"""T13: the same two roles in every seed."""

import pytest

from mnemoscope.systems.tiny_recall.analyses.carriers import roles_by_carrying
from mnemoscope.systems.tiny_recall.claims.same_roles import CLAIM, roles_by_attention
from mnemoscope.systems.tiny_recall.constructed import dissociated, local_binding, store_and_match
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.systems.on_trial import on, trouble, verdict

TASK = PermutationLookup(repeat_ratio=0.3)


@pytest.mark.parametrize("claim", [CLAIM, *CLAIM.rivals], ids=lambda claim: claim.id)
def test_controls_behave(claim):
    assert trouble(claim) is None


def test_effect_by_hand():
    found = roles_by_attention(on(local_binding(), TASK))
    assert (found["scanning"], found["binding"]) == pytest.approx((1, 1))
    assert found["effect"] == pytest.approx(0.1)  # min(1 - .9, 1 - .5)


def test_one_exception_refutes():
    usual = roles_by_attention(on(local_binding(), TASK)) | {"gate": 1.0}
    exception = roles_by_attention(on(dissociated(), TASK))
    assert exception["gate"] == 1
    assert verdict(CLAIM, usual).outcome == "SUPPORTED"
    assert verdict(CLAIM, [*[usual] * 31, exception]).outcome == "REFUTED"


def test_roles_by_what_is_carried():
    every, most = CLAIM.rivals
    usual = roles_by_carrying(on(store_and_match(), TASK))
    exception = roles_by_carrying(on(dissociated(), TASK))
    assert usual["gate"] == exception["gate"] == 1
    mixture = [*[usual] * 31, exception]
    # the pairs are drawn and not kept, so that no single seed is sure enough to be an exception
    assert [verdict(claim, mixture).outcome for claim in (every, most)] == ["INCONCLUSIVE", "SUPPORTED"]
    assert [verdict(claim, exception).outcome for claim in (every, most)] == ["REFUTED", "REFUTED"]  # by their number
    assert [verdict(claim, usual).outcome for claim in (every, most)] == ["SUPPORTED", "SUPPORTED"]
