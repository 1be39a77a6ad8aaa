"""D4: removing the features that suffice for recall costs what removing the MLP costs.

Features that suffice need not be needed: others can stand in for them. So both are measured with one removal, by zero:
a mean would leave a default answer, which is right where few pairs are left.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope import CLAIMS, Claim, Criterion, Subject, generator
from mnemoscope.claims import GATE, case, controls, most, table
from mnemoscope.models import set_by_hand
from mnemoscope.systems.dictionaries.answers import read_answers, right
from mnemoscope.systems.dictionaries.circuits import detected_once, detected_twice
from mnemoscope.systems.dictionaries.claim_parts import (
    MIN_CARRIED,
    TEXTS,
    UNTRAINED,
    V3,
    dictionary_claim,
    passing,
    transcoder,
)
from mnemoscope.systems.dictionaries.constructed import PairRecall
from mnemoscope.systems.dictionaries.units import (
    Units,
    changes,
    ends,
    features,
    keep_in_turn,
    n_needed,
    neurons,
    rotated,
)

SHARE = 0.9
"""The kept units must keep this share of the recall that the MLP adds."""
COST = 0.75
"""Share of the cost of the MLP that their removal must cost."""
LEAD = 0.25
"""By how much that must exceed the cost of as many other units at random."""
SPARSE = 2
"""Features that are active at once in the transcoder of the rival."""
N_RANDOM, N_ROTATIONS = 20, 5


@torch.no_grad()
def measure(subject: Subject, *, share: float = SHARE, error: bool = True, seed: int = 0) -> dict[str, float]:
    """Costs of removing the units that suffice, by that of removing the MLP, their leads on random units, and `GATE`.

    `error` False: units must suffice without the error. `seed` is that of the transcoders.
    """
    model, answers = subject.model, read_answers(subject)
    none, whole = ends(model, answers, removal="zero")
    rows, carries = answers.measured_on, whole - none >= MIN_CARRIED
    stream, target = (answers.stream + answers.written)[rows], answers.target[rows]
    draws = generator(subject.seed, "random units")

    def cost(units: Units, chosen: Int[Tensor, " chosen"]) -> float:
        lost = changes(answers, units, removal="zero")[rows][:, chosen] @ units.value[chosen]
        return (whole - right(model, stream - lost, target)[0]) / (whole - none) if carries else 0.0

    def read(units: Units) -> tuple[float, float, int]:
        order = keep_in_turn(model, answers, units, len(units.value), error=error, removal="zero")
        n = n_needed(model, answers, units, order, error=error, share=share, removal="zero")
        active = (units.activation[answers.order] != 0).any(0).nonzero()[:, 0]
        others = [active[torch.randperm(len(active), generator=draws)[:n]] for _ in range(N_RANDOM)]
        needed = cost(units, order[:n])
        return needed, needed - sum(cost(units, some) for some in others) / N_RANDOM, n

    turned = [read(rotated(model, answers, answers.post.shape[1], draws)) for _ in range(N_ROTATIONS)]
    found = {
        "features": read(features(transcoder(subject, seed=seed), answers)),
        "sparse": read(features(transcoder(subject, k=SPARSE, seed=seed), answers)),
        "neurons": read(neurons(model, answers)),
        "rotated": torch.tensor(turned, dtype=torch.float64).mean(0).tolist(),
    }
    words = ("cost", "lead", "suffice")
    return {
        **{
            f"{kind} {word}": float(value)
            for kind, one in found.items()
            for word, value in zip(words, one, strict=True)
        },
        GATE: passing(subject),
    }


_SHARE = "times the cost of the MLP"


def _numbers(cost: float, lead: float, *kinds: str) -> dict[str, dict[str, float]]:
    return {V3: {f"{kind} {word}": value for kind in kinds for word, value in (("cost", cost), ("lead", lead))}}


def _parts(kind: str) -> tuple[Criterion, ...]:
    return most(f"{kind} cost", "above", COST, _SHARE), most(f"{kind} lead", "above", LEAD, _SHARE)


_AT = table("at the margins", _numbers(COST, LEAD, "features", "sparse", "rotated"))
_CLAIM = dictionary_claim(
    id="D4",
    statement=(
        "Removing the features of a transcoder that suffice for v3's recall costs what removing its MLP costs, within "
        "a quarter, and more than removing as many others."
    ),
    measure=measure,
    explanation=TEXTS.explain("D4", share=SHARE, cost=COST, lead=LEAD, n=N_RANDOM, sparse=SPARSE, turns=N_ROTATIONS),
    prompts="enumerated",
    parts=_parts("features"),
    factors={"share": (0.5, 0.75), "error": (False,), "seed": (1,)},
    controls=controls(
        positive=(case("one feature a pair", set_by_hand(V3, detected_once, PairRecall()), n=1),),
        negative=(
            case("two features a pair", set_by_hand(V3, detected_twice, PairRecall()), n=1),
            UNTRAINED,
            _AT,
        ),
    ),
)


def _of(word: str, statement: str, kind: str) -> Claim:
    """A rival that says the same about other units."""
    return _CLAIM.rival(
        word,
        statement,
        parts=_parts(kind),
        controls=controls(
            positive=(table("as claimed", _numbers(0.95, 0.5, kind)),),
            negative=(
                table("not needed", _numbers(0.1, 0.1, kind)),
                table("no more than others", _numbers(0.95, 0.0, kind)),
                _AT,
            ),
        ),
    )


CLAIM = _CLAIM.against(
    _of("rotated", "Any units do: neurons rotated at random that suffice are needed as well.", "rotated"),
    _of("sparsity", f"Sparsity decides it: with {SPARSE} features active at once those that suffice are needed.",
        "sparse"),
)  # fmt: skip
CLAIMS.add(CLAIM.id, CLAIM)
