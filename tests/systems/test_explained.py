"""Every claim of every system, and every rival, says in words what its effects are and what they show."""

import re
from pathlib import Path

import pytest

import mnemoscope.systems
from mnemoscope.claims import ClaimTexts
from mnemoscope.claims.claim import CLAIMS
from mnemoscope.report.rulings.words import describe_quantity, registered_terms

QUANTIFIED = {
    "most": "in more than half of the",
    "every": "in every",
    "exists": "in at least one",
    "mean": "on average over the",
    "equivalence": "on average over the",
}
REFUTED = {**QUANTIFIED, "every": QUANTIFIED["exists"], "exists": QUANTIFIED["every"]}
"""Against all one, and against one all."""


@pytest.mark.parametrize("name", CLAIMS.names())
@pytest.mark.every_case
def test_a_claim_is_explained(name):
    claim = CLAIMS.get(name)
    everyone = (claim, *claim.rivals)
    assert [
        (one.id, part.name) for one in everyone for part in one.criteria if not describe_quantity(one, part.name)
    ] == []
    assert claim.explanation is not None
    assert claim.explanation.limits
    for one in everyone:
        found = one.explanation
        texts = [found.procedure, found.margins, found.limits]
        texts += [text for each in found.quantities.values() for text in (each.words, each.formula)]
        assert not re.search(r"\{\w+[:}]", " ".join(texts))


@pytest.mark.parametrize("name", CLAIMS.names())
def test_sentences_of_a_claim_name_quantifier_margin_and_gate(name):
    claim = CLAIMS.get(name)
    for one in (claim, *claim.rivals):
        said = dict(registered_terms(one))
        for term, words in (("criterion", QUANTIFIED), ("refutation", REFUTED)):
            parts = re.split(r"; | true: ", said[term].removesuffix("."))[-len(one.criteria) :]
            for criterion, sentence in zip(one.criteria, parts, strict=True):
                assert f"{words[criterion.quantifier]} {one.replicate}" in sentence
                assert re.search(rf"(?:above|below|within|than) ±?{re.escape(f'{criterion.margin:g}')}\b", sentence)
                assert len(sentence.split()) <= 30
        if one.gate is not None:
            assert f"{one.replicate}" in said["gate"].split(" where ")[0]
            assert one.gate.statement in said["gate"]


def test_every_text_belongs_to_a_claim_or_a_rival():
    files = list(Path(mnemoscope.systems.__path__[0]).glob("*/claims/texts.yaml"))
    explained = [id for file in files for id in ClaimTexts(file).ids]
    claims = [CLAIMS.get(name) for name in CLAIMS.names()]
    own = [rival.id for claim in claims for rival in claim.rivals if rival.explanation is not claim.explanation]
    assert sorted(explained) == sorted([*CLAIMS.names(), *own])
