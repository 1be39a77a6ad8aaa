"""R2: learning of three steps where nothing but the last symbol is asked for.

The source trained models of 1 to 8 layers. Here they have 12; 3 layers, 10,000 steps, half and twice the rate are
factors: that they only need more steps or a better rate would turn the verdict there, and the table would say so.
"""

from dataclasses import replace

from mnemoscope import CLAIMS, Configuration, Criterion, HookedModel, Subject
from mnemoscope.claims import Measured, case, controls, most, table
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.retrieval.claim_parts import (
    FIRST_OF_THREE,
    LAST,
    TASK,
    TEXTS,
    partial_errors,
    retrieval,
)
from mnemoscope.systems.retrieval.constructed import chain_follower

UNITS = {LAST: Configuration(preset=LAST)}
ANSWERS = replace(TASK, whole_chain=False)
"""The task of that configuration."""
PUBLISHED, HALF = 0.7, 0.5


def measure(subject: Subject) -> Measured:
    """Squared error of the last symbol (`last`), sequence by sequence."""
    return {"last": list(partial_errors(subject).values())[-1]}


def knows() -> HookedModel:
    """A model with weights set by hand that answers the last symbol."""
    return chain_follower(TASK.n_steps, whole_chain=False)


def gives_up() -> HookedModel:
    """The same, stopped one step before."""
    return chain_follower(TASK.n_steps, whole_chain=False, reached=TASK.n_steps - 1)


_ERROR = "squared error"
_KNOWS = case("follows", set_by_hand(LAST, knows, ANSWERS))
_GIVES_UP = case("stops", set_by_hand(LAST, gives_up, ANSWERS))
_UNTRAINED = case("untrained", untrained(UNITS))
_R2 = retrieval(
    id="R2",
    statement="Where only the last symbol is due, no model learns to follow three steps.",
    units=UNITS,
    first_seed=FIRST_OF_THREE,
    measure=measure,
    explanation=TEXTS.explain("R2", published=PUBLISHED, half=HALF),
    parts=(Criterion(name="last", quantifier="every", margin=PUBLISHED, direction="above", unit=_ERROR),),
    prompts="own",
    factors={"model.n_layers": (3,), "recipe.n_steps": (10_000,), "recipe.learning_rate": (1e-3, 4e-3)},
    controls=controls(positive=(_GIVES_UP,), negative=(_KNOWS, table("at the margin", {LAST: {"last": PUBLISHED}}))),
)
R2 = _R2.against(
    _R2.rival(
        "learned",
        "Most models learn it all the same.",
        parts=(most("last", "below", HALF, _ERROR),),
        controls=controls(positive=(_KNOWS,), negative=(_GIVES_UP, _UNTRAINED)),
    ),
)
CLAIMS.add(R2.id, R2)
