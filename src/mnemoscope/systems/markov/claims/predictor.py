"""E1: the final model is the bigram predictor, for two, three and eight symbols.

A model is nearer to it than to any simpler predictor if it has closed half of the gap between them. What attention
alone can write is a linear readout of frequencies: the rival says that models are that rather than the predictor.
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Subject
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.models.constructed import predict_exactly
from mnemoscope.systems.markov.analyses.distances import divergences, linear_readout
from mnemoscope.systems.markov.claim_parts import (
    EIGHT,
    HALF,
    TEXTS,
    THREE,
    TWO,
    counting_by_hand,
    induction_by_hand,
    markov_claim,
    sequences,
    units,
)
from mnemoscope.systems.markov.tasks import MarkovChains

UNITS = units(TWO, THREE, EIGHT)
SYMBOLS = {TWO: 2, THREE: 3, EIGHT: 8}
_SHARE, _NATS = "share of the gap", "nats"


def measure(subject: Subject) -> dict[str, float]:
    """The share of the gap that is closed, the divergence, and by how much that from a linear readout is smaller."""
    batch = sequences(subject)
    found, read = (ask(subject.model, subject.task, batch) for ask in (divergences, linear_readout))
    kl = float(found.kl.sel(predictor="bigram"))
    return {"closed": float(found.closed), "kl": kl, "linear": kl - float(read.kl), "gain": float(read.gain)}


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The numbers of each number of symbols, as in `closed_3`."""
    return {f"{name}_{SYMBOLS[unit]}": value for unit, found in measured.items() for name, value in found.items()}


def _built(name: str, make: object) -> Case:
    """A control: the same model by hand for every number of symbols."""
    plants = [
        set_by_hand(unit, partial(make, k), MarkovChains(n_symbols=k))  # pyright: ignore[reportCallIssue, reportArgumentType]
        for unit, k in SYMBOLS.items()
    ]
    return case(name, combined(*plants), n=1)


_INDUCTION, _COUNTING = _built("induction heads", induction_by_hand), _built("models that count", counting_by_hand)
_EXACT = case("the predictor itself", predict_exactly(UNITS, "bigram"), n=1)
_UNTRAINED = case("untrained", untrained(UNITS))
_E1 = markov_claim(
    id="E1",
    statement="The final model is the bigram predictor, for two, three and eight symbols.",
    units=UNITS,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("E1"),
    prompts="own",
    parts=tuple(most(f"closed_{k}", "above", HALF, _SHARE) for k in SYMBOLS.values()),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_INDUCTION, _EXACT), negative=(_COUNTING, _UNTRAINED)),
)
E1 = _E1.against(
    _E1.rival(
        "linear",
        "The final model is a linear readout of frequencies rather than the bigram predictor.",
        parts=tuple(most(f"linear_{k}", "above", 0.0, _NATS) for k in SYMBOLS.values()),
        controls=controls(positive=(_INDUCTION,), negative=(_EXACT,)),
    ),
)
CLAIMS.add(E1.id, E1)
