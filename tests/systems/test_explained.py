"""Every claim of every system, and every rival, says in words what its effects are and what they show."""

import re
from pathlib import Path

import pytest

import mnemoscope.systems
from mnemoscope.claims import ClaimTexts
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.report.rulings.words import described


@pytest.mark.parametrize("name", CLAIMS.names())
@pytest.mark.every_case
def test_a_claim_is_explained(name):
    claim = CLAIMS.get(name)
    everyone = (claim, *claim.rivals)
    assert [(one.id, part.name) for one in everyone for part in one.criteria if not described(one, part.name)] == []
    assert claim.explanation is not None
    assert claim.explanation.limits
    for one in everyone:
        found = one.explanation
        texts = [found.procedure, found.margins, found.limits]
        texts += [text for each in found.quantities.values() for text in (each.words, each.formula)]
        assert not re.search(r"\{\w+[:}]", " ".join(texts))


def test_every_text_belongs_to_a_claim_or_a_rival():
    files = list(Path(mnemoscope.systems.__path__[0]).glob("*/claims/texts.yaml"))
    explained = [id for file in files for id in ClaimTexts(file).ids]
    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    own = [rival.id for claim in claims for rival in claim.rivals if rival.explanation is not claim.explanation]
    assert sorted(explained) == sorted([*CLAIMS.names(), *own])
