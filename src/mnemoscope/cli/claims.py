"""Claims by name."""

from collections.abc import Sequence

from mnemoscope.claims.claim import CLAIMS, Claim
from mnemoscope.core.errors import one_of


def claims_called(words: Sequence[str]) -> list[Claim]:
    """The claims with these ids or of these systems, each once; all if there are no words."""
    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    claims.sort(key=lambda claim: (claim.system, len(claim.id), claim.id))
    known = dict.fromkeys([*(claim.system for claim in claims), *(claim.id for claim in claims)])
    for word in words:
        one_of("a claim or a system", word, known)
    return [claim for claim in claims if not words or claim.id in words or claim.system in words]
