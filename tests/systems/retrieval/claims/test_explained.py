"""Every claim, and every rival, says in words what it measures."""

from mnemoscope.judging.claim import CLAIMS
from mnemoscope.viz.rulings.asked import described

SYSTEMS = ("retrieval",)


def test_every_criterion_of_a_claim_and_of_its_rivals_is_described():
    registered = [claim for name in CLAIMS.names() if (claim := CLAIMS.get(name)).system in SYSTEMS]
    unexplained = [
        (one.id, part.name)
        for claim in registered
        for one in (claim, *claim.rivals)
        for part in one.criteria
        if not described(one, part.name)
    ]
    assert {claim.system for claim in registered} == set(SYSTEMS)
    assert unexplained == []
