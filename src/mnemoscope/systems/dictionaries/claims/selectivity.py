"""F-K1: features of a transcoder are more selective for pairs than neurons, and recall needs fewer of them.

Selectivities compare equally many units, those that recall needs most by one order for all kinds. Counts come from the
same order and the same removal.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from mnemoscope import CLAIMS, Claim, Subject, generator
from mnemoscope.claims import GATE, controls, most, table
from mnemoscope.systems.dictionaries.answers import read_answers
from mnemoscope.systems.dictionaries.claim_parts import (
    DETECTORS,
    MIN_CARRIED,
    MIXTURES,
    TEXTS,
    UNTRAINED,
    V3,
    carried,
    dictionary_claim,
    passing,
    transcoder,
)
from mnemoscope.systems.dictionaries.units import (
    Units,
    explained,
    features,
    keep_in_turn,
    n_needed,
    neurons,
    rotated,
)

MORE = 0.1
"""Share of the entropy by which features must be explained better: from it on a latent names a neuron's role."""
FEWER = 0.75
"""Units that are needed, by neurons that are needed."""
SHARE = 0.75
"""The kept units must keep this share of the recall that the MLP adds."""
N_COMPARED = 16
"""Units of each kind whose selectivity is compared: a quarter of the neurons."""
N_ROTATIONS = 20
LESS_SPARSE = 32
"""Features that are active at once in the transcoder of the rival."""


def measure(subject: Subject, *, share: float = SHARE, n_states: int | None = None, seed: int = 0) -> dict[str, float]:
    """Selectivities less that of neurons, counts of needed units by that of neurons, and `GATE`.

    `seed` is that of the transcoders.
    """
    model, answers = subject.model, read_answers(subject)
    n_neurons = answers.post.shape[1]

    def read(units: Units, *, error: bool = False) -> tuple[float, int]:
        order = keep_in_turn(model, answers, units, n_neurons, error=error)
        count = n_needed(model, answers, units, order, error=error, share=share)
        return explained(subject, units, order[:N_COMPARED], n_states=n_states), count

    main = features(transcoder(subject, seed=seed), answers)
    draws = generator(subject.seed, "rotations")
    turned = [read(rotated(model, answers, n_neurons, draws)) for _ in range(N_ROTATIONS)]
    own, n_own = read(neurons(model, answers))
    found = {
        "features": read(main),
        "narrow": read(features(transcoder(subject, width=1, seed=seed), answers)),
        "dense": read(features(transcoder(subject, k=LESS_SPARSE, seed=seed), answers)),
        "rotated": tuple(np.mean(turned, 0).tolist()),
    }
    _, n_with_error = read(main, error=True)
    by = n_own if carried(subject) >= MIN_CARRIED and n_own else None
    return {
        **{f"{name} selective": selective - own for name, (selective, _) in found.items()},
        **{f"{name} needed": count / by if by else 1.0 for name, (_, count) in found.items()},
        "features needed, error kept": n_with_error / by if by else 1.0,
        "selectivity of neurons": own,
        "neurons needed": float(n_own),
        GATE: passing(subject),
    }


_SHARE, _BY = "share of the entropy", "units by neurons"
_HOLDS = {"features selective": 0.3, "features needed": 0.4, "features needed, error kept": 0.4}
_AT = {"features selective": MORE, "features needed": FEWER, "features needed, error kept": FEWER}
_CLAIM = dictionary_claim(
    id="F-K1",
    statement=(
        "The features of a transcoder of v3's MLP are more selective for the pair (x, y) than its neurons, and recall "
        "needs fewer of them."
    ),
    measure=measure,
    explanation=TEXTS.explain("F-K1", more=MORE, fewer=FEWER, share=SHARE, n=N_COMPARED, dense=LESS_SPARSE),
    prompts="enumerated",
    parts=(
        most("features selective", "above", MORE, _SHARE),
        most("features needed", "below", FEWER, _BY),
        most("features needed, error kept", "below", FEWER, _BY),
    ),
    factors={"share": (0.5, 0.9), "n_states": (4,), "seed": (1,)},
    controls=controls(positive=(MIXTURES,), negative=(DETECTORS, UNTRAINED, table("at the margins", {V3: _AT}))),
)


def _beside(word: str, statement: str, name: str, *, as_well: bool) -> Claim:
    """A rival that reads other units: they do as well as features, or do not do better than neurons."""
    parts = (most(f"{name} selective", "above", MORE, _SHARE), most(f"{name} needed", "below", FEWER, _BY))
    well, ill = ({f"{name} selective": a, f"{name} needed": b} for a, b in ((0.3, 0.4), (0.0, 1.2)))
    turned: dict[str, Literal["above", "below"]] = {"above": "below", "below": "above"}
    return _CLAIM.rival(
        word,
        statement,
        parts=parts if as_well else tuple(replace(part, direction=turned[part.direction]) for part in parts),
        joined="all" if as_well else "any",
        controls=controls(
            positive=(table("as claimed", {V3: well if as_well else ill}),),
            negative=(
                table("otherwise", {V3: ill if as_well else well}),
                table("at the margins", {V3: {f"{name} selective": MORE, f"{name} needed": FEWER}}),
            ),
        ),
    )


CLAIM = _CLAIM.against(
    _beside("rotated", "Neurons that are rotated at random do as well as features.", "rotated", as_well=True),
    _beside("width", "The number of features decides it: as many as neurons do no better.", "narrow", as_well=False),
    _beside("sparsity", f"Sparsity decides it: with {LESS_SPARSE} features active at once they do no better.", "dense",
            as_well=False),
)  # fmt: skip
CLAIMS.add(CLAIM.id, CLAIM)
