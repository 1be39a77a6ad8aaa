"""G5: a subject's fact is read from the early MLPs at its last token (Meng et al. 2022).

There the subject is corrupted by noise and a window of ten layers restored; here by another subject, and the layers up
to the middle. The first MLPs encode the identity of the token and so restore every fact about it by themselves. The
first layers are therefore left out of the claim, and are its rival. What the MLPs restore counts beyond what those of
a third subject do, which restore no fact but take the second subject's away; and it must be more than they restore of
a text in which the subject's token comes again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from mnemoscope import CLAIMS, Gate, HookedModel, Named, Patch, Site
from mnemoscope.claims import GATE, case, controls, table
from mnemoscope.systems.language_models.claim_parts import TEXTS, UNTRAINED, about_models, carries, leads
from mnemoscope.systems.language_models.constructed import recalling
from mnemoscope.systems.language_models.prompts import SubjectQuestions, facts
from mnemoscope.systems.language_models.reading import LEAST, ahead
from mnemoscope.systems.language_models.words import ALL, CONTINENTS, CURRENCIES, NAMESAKES, STATES

N_FACTS = 48
"""Number of facts that a verdict needs, of 81; tokenizers leave some without a partner."""
IDENTITY = 0.05
"""Share of all layers, at least one, that encode the identity of the token."""


def measure(
    model: HookedModel, *, identity: float = IDENTITY, until: float = 0.5, relations: str = ALL
) -> Mapping[str, Any]:
    """Per fact `restored`, `apart`, `lead`, `named`, `whole`, `third`, what else restores (`late`, `at_last`,
    `attention`, `first`), `attention_lead`, `first_lead`, and the gate.

    Early are the layers from the share `identity` of all up to the share `until`. `relations` is a set of facts.
    """
    of = facts(model, relations=relations)
    n_layers = model.cfg.n_layers
    start, end = max(1, round(identity * n_layers)), round(until * n_layers)
    early, late = range(start, max(start + 1, end)), range(max(start + 1, end), n_layers)
    told = _Restoring(model, of.told)
    own = told.lead(early)
    whole, first = told.share(own), told.share(told.lead(range(start)))
    at_late, at_last = told.share(told.lead(late)), told.share(told.lead(early, pos="last"))
    attention = told.share(told.lead(early, kind="attn_out"))
    third = told.lead(early, third=True)
    restored = told.beyond_third(own, third)
    named = np.zeros_like(restored)
    if of.named is not None:
        again = _Restoring(model, of.named)
        named = again.beyond_third(again.lead(early), again.lead(early, third=True))
    return {
        "restored": restored,
        "apart": restored - named,
        "lead": whole - np.maximum(at_late, at_last),
        "first_lead": first - whole,
        "attention_lead": attention - whole,
        "named": named,
        "whole": whole,
        "third": told.share(third),
        "first": first,
        "late": at_late,
        "at_last": at_last,
        "attention": attention,
        GATE: np.minimum(told.clean, -told.corrupted),
    }


PartOfLayer = Literal["mlp_out", "attn_out"]


class _Restoring:
    """The lead of the first subject's answer over the second's, in questions about the second with parts put back."""

    def __init__(self, model: HookedModel, of: SubjectQuestions) -> None:
        self._model, self._of, self._foil = model, of, of.pairs.foil
        self._asked = replace(of.pairs.corrupted, targets=of.pairs.answer)
        self.clean = ahead(model, of.pairs.clean, self._foil)[0]
        self.corrupted = ahead(model, self._asked, self._foil)[0]

    def lead(
        self,
        layers: Sequence[int],
        *,
        kind: Literal["mlp_out", "attn_out"] = "mlp_out",
        pos: str = "S",
        third: bool = False,
    ) -> Float[np.ndarray, " fact"]:
        """The lead with outputs of some layers as in the question about the first subject, or about the third."""
        by = self._of.third if third else self._of.pairs.clean

        def patches(rows: slice) -> list[Patch]:
            source = Named(name="another question", value=by.select(rows))
            return [Patch(site=Site(kind=kind, layer=layer, pos=pos), source=source) for layer in layers]

        return ahead(self._model, self._asked, self._foil, patches)[0]

    def share(self, lead: Float[np.ndarray, " fact"]) -> Float[np.ndarray, " fact"]:
        """A lead as a share of the way from the second question to the first."""
        return (lead - self.corrupted) / np.maximum(self.clean - self.corrupted, LEAST)

    def beyond_third(
        self, own: Float[np.ndarray, " fact"], third: Float[np.ndarray, " fact"]
    ) -> Float[np.ndarray, " fact"]:
        """The gain by outputs on the first question beyond those on the third, as a share of their difference."""
        unrelated = ahead(self._model, replace(self._of.third, targets=self._of.pairs.answer), self._foil)[0]
        return (own - third) / np.maximum(self.clean - unrelated, LEAST)


def early(case: int) -> dict[str, Any]:
    """A control: facts are known by the second MLP, at the subject."""
    return recalling("early", case)


def late(case: int) -> dict[str, Any]:
    """A control: facts are known by the last MLP, at the last token."""
    return recalling("late", case)


def said_again(case: int) -> dict[str, Any]:
    """A control: the second MLP repeats the token, from which a fact follows at the last token."""
    return recalling("again", case)


def first(case: int) -> dict[str, Any]:
    """A control: facts follow from the token by the first MLP, at the subject."""
    return recalling("first", case)


def _planted(**values: float) -> dict[str, Any]:
    none = dict.fromkeys(("restored", "apart", "lead", "first_lead", "attention_lead"), 0.0)
    return {"model": {name: np.full(4, value) for name, value in {**none, **values, GATE: 1.0}.items()}}


_EARLY, _LATE, _FIRST = case("early recall", early, n=1), case("late recall", late, n=1), case("identity", first, n=1)
_AGAIN = case(name="identity said again", plant=said_again, n=1)
_ATTENTION = table("attention at the subject", _planted(attention_lead=0.5))
_G5 = about_models(
    id="G5",
    statement="A subject's fact is read from the early MLPs at its last token, above those that say which token it is: "
    "put into a question about another subject, their outputs bring back the answer, beyond what a third subject's "
    "outputs do, more than they bring back the token itself, and more than late MLPs there or early ones at the end.",
    source="Meng et al. 2022",
    n_replicates=N_FACTS,
    parts=(
        carries("restored", unit="of the difference"),
        leads("apart", unit="of the difference"),
        leads("lead", unit="of the difference"),
    ),
    gate=Gate(statement="puts each answer ahead on its own question by half a logit or more", at_least=0.5),
    controls=controls(positive=(_EARLY,), negative=(_FIRST, _AGAIN, _LATE, UNTRAINED, _ATTENTION)),
    measure=measure,
    explanation=TEXTS.explain("G5"),
    factors={
        "identity": (0.1,), "until": (0.25,), "relations": (STATES, CURRENCIES, CONTINENTS, NAMESAKES),
    },
)  # fmt: skip
G5 = _G5.against(
    _G5.rival(
        "identity",
        "The MLPs of the first layers, which say which token it is, bring back more than those above them.",
        parts=(leads("first_lead", unit="of the difference"),),
        controls=controls(positive=(_FIRST,), negative=(_EARLY, UNTRAINED)),
    ),
    _G5.rival(
        "attention",
        "The attention of these layers at that token brings back more than their MLPs.",
        parts=(leads("attention_lead", unit="of the difference"),),
        controls=controls(positive=(_ATTENTION,), negative=(_EARLY, UNTRAINED)),
    ),
)
CLAIMS.add(G5.id, G5)
