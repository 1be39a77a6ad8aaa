"""Every claim of every system, and every rival, says in words what its effects are and what they show."""

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.report.rulings.words import described


@pytest.mark.parametrize("name", CLAIMS.names())
def test_a_claim_is_explained(name):
    claim = CLAIMS.get(name)
    everyone = (claim, *claim.rivals)
    assert [(one.id, part.name) for one in everyone for part in one.criteria if not described(one, part.name)] == []
    assert claim.explanation is not None
    assert claim.explanation.limits
