"""D2: two dictionaries of one model agree less than the circuits of two models."""

from functools import partial

import numpy as np
import torch

from mnemoscope import CLAIMS, Claim, Criterion, Subject, generator
from mnemoscope.claims import GATE, case, controls, most, table
from mnemoscope.systems.dictionaries.agreement import (
    Pair,
    circuits_agree,
    dictionaries_agree,
    paired,
    rows,
    set_by_hand,
    units_agree,
    untrained_pair,
)
from mnemoscope.systems.dictionaries.answers import read_answers
from mnemoscope.systems.dictionaries.claim_parts import N_STEPS, TEXTS, V3, WIDTH, K, dictionary_claim, passing
from mnemoscope.systems.dictionaries.constructed import copies, mixtures, mixtures_again
from mnemoscope.systems.dictionaries.units import rotated

MORE = 0.2
"""Agreement by which circuits must lead: about what one edge of ten changes, where chance gives a half."""
ALIKE = 0.1
"""Agreement within which two kinds of units do as well: half of that."""
THRESHOLD = 0.7
"""Correlation of partners, that of `ms.analyses.dictionary_agreement`."""
TARGET = 0.9
"""Faithfulness of a circuit, that of `mnemoscope discover`."""
N_ROTATIONS = 20


@torch.no_grad()
def measure(
    found: Subject | Pair,
    *,
    threshold: float = THRESHOLD,
    target: float = TARGET,
    width: float = WIDTH,
    k: int = K,
    n_steps: int = N_STEPS,
    seed: int = 0,
) -> dict[str, float]:
    """Agreement beyond chance of circuits, dictionaries, rotated neurons and neurons, and `GATE`.

    `seed` is that of the dictionaries.
    """
    pair = paired(found)
    one, other = pair.one, Subject(model=pair.other.model, task=pair.one.task, seed=pair.one.seed)
    answers = read_answers(one)
    kept, draws = rows(answers), generator(one.seed, "rotations")
    n_neurons, how = answers.post.shape[1], {"threshold": threshold, "seed": one.seed}

    def turned() -> torch.Tensor:
        return rotated(one.model, answers, n_neurons, draws).activation[kept]

    circuits = circuits_agree(pair, target=target)
    trained = dictionaries_agree(pair, threshold=threshold, width=width, k=k, n_steps=n_steps, seed=seed)
    frames = float(np.mean([units_agree(turned(), turned(), **how) for _ in range(N_ROTATIONS)]))
    neurons = units_agree(answers.post[kept], read_answers(other).post[kept], **how)
    return {
        "lead": circuits - trained,
        "rotated less features": frames - trained,
        "neurons less features": neurons - trained,
        "circuits": circuits,
        "features": trained,
        "rotated": frames,
        "neurons": neurons,
        GATE: passing(one),
    }


_SHARE = "share beyond chance"
_AT = table("at the margins", {V3: {
    "lead": MORE, "rotated less features": -ALIKE, "neurons less features": ALIKE,
}})  # fmt: skip
_TRAINED = partial(case, n=1, elsewhere=0.2)
"""A control on which dictionaries are trained: on other machines a feature more or less has a partner."""
_CLAIM = dictionary_claim(
    id="D2",
    statement="Two dictionaries of one v3 agree less than the circuits of two v3 do, each beyond chance.",
    measure=measure,
    explanation=TEXTS.explain("D2", more=MORE, alike=ALIKE, threshold=THRESHOLD, target=TARGET, n=N_ROTATIONS),
    prompts="own",
    parts=(most("lead", "above", MORE, _SHARE),),
    factors={
        "width": (1, 2), "k": (32,), "n_steps": (8000,), "threshold": (0.5, 0.9), "target": (0.8, 0.95), "seed": (1,),
    },
    controls=controls(
        positive=(_TRAINED("circuits alike", partial(set_by_hand, mixtures, mixtures_again, (0, 1))),),
        negative=(
            _TRAINED("circuits unlike", partial(set_by_hand, mixtures, copies, (0, 1))),
            _TRAINED("a dictionary beside itself", partial(set_by_hand, mixtures, mixtures_again, (0, 0))),
            _TRAINED("untrained", untrained_pair),
            _AT,
        ),
    ),
)  # fmt: skip


def _beside(word: str, statement: str, part: Criterion, holds: float, fails: float) -> Claim:
    """A rival with one criterion, and numbers that meet it and do not."""
    return _CLAIM.rival(
        word, statement, parts=(part,),
        controls=controls(
            positive=(table("as claimed", {V3: {part.name: holds}}),),
            negative=(table("otherwise", {V3: {part.name: fails}}), _AT),
        ),
    )  # fmt: skip


CLAIM = _CLAIM.against(
    _beside(
        "rotated",
        "Neurons that are rotated at random do as well: two rotations agree as much as two dictionaries.",
        most("rotated less features", "above", -ALIKE, _SHARE), 0.0, -0.4,
    ),
    _beside(
        "grain",
        "The size of the parts decides it: neurons of two models agree no more than features of two dictionaries.",
        most("neurons less features", "below", ALIKE, _SHARE), 0.0, 0.4,
    ),
)  # fmt: skip
CLAIMS.add(CLAIM.id, CLAIM)
