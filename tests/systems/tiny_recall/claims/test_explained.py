"""Every claim of tiny-recall and every rival says what its effects are."""

from mnemoscope.judging.claim import CLAIMS
from mnemoscope.viz.rulings.asked import described


def test_every_effect_is_described():
    claims = [claim for name in CLAIMS.names() if (claim := CLAIMS.get(name)).system == "tiny-recall"]
    assert len(claims) >= 25
    unexplained = [
        (one.id, part.name)
        for claim in claims
        for one in (claim, *claim.rivals)
        for part in one.criteria
        if not described(one, part.name)
    ]
    assert unexplained == []
