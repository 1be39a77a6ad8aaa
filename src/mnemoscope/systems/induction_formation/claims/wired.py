"""I2: induction heads and previous-token heads are wired many to many."""

from functools import partial

import numpy as np
import torch

from mnemoscope import CLAIMS, PromptPairs, Subject
from mnemoscope.claims import GATE, Case, case, controls, most
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.induction_formation.analyses.heads import scores, strengths
from mnemoscope.systems.induction_formation.analyses.wiring import wiring
from mnemoscope.systems.induction_formation.claim_parts import (
    BASE,
    HAND_TASK,
    LEARNED,
    TEXTS,
    formation_claim,
    prompts_of,
    task_of,
    units,
)
from mnemoscope.systems.induction_formation.claims.several_heads import by_hand, copier_by_hand
from mnemoscope.systems.induction_formation.ideal_parts import QUERY

UNITS = units(BASE)
MANY = 1.5


@torch.no_grad()
def measure(subject: Subject) -> dict[str, float]:
    """Effective numbers of heads at either end, and how strong the best heads of both layers are."""
    batch = prompts_of(subject)
    pairs = PromptPairs.from_task(task_of(subject), batch, kind="swap_exemplars", seed=subject.seed)
    found, strong = wiring(subject.model, pairs), strengths(subject.model, batch)
    return {
        "n_previous": float(found.n_previous),
        "n_induction": float(found.n_induction),
        "largest_share": float(np.max(found.share.values)),
        "best_induction": float(strong.induction.max()),
        "best_previous": float(strong.previous.max()),
        GATE: scores(subject.model(batch.inputs)[:, QUERY], batch)["accuracy"],
    }


def _built(name: str, n_previous: int, n_induction: int) -> Case:
    """A control: heads by hand, wired all to all."""
    return case(name, set_by_hand(BASE, partial(by_hand, n_previous, n_induction), HAND_TASK), n=1)


_MANY, _ONE = _built("three to four", 3, 4), _built("one to one", 1, 1)
_FROM_ONE, _TO_ONE = _built("one to four", 1, 4), _built("three to one", 3, 1)
_COPIER = case("a copier of both labels", set_by_hand(BASE, copier_by_hand, HAND_TASK), n=1)
_UNTRAINED = case("untrained", untrained(UNITS))
_I2 = formation_claim(
    id="I2",
    statement="Induction heads and previous-token heads are wired many to many.",
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    explanation=TEXTS.explain("I2"),
    prompts="own",
    parts=(most("n_previous", "above", MANY, "heads"), most("n_induction", "above", MANY, "heads")),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_MANY,), negative=(_ONE, _FROM_ONE, _TO_ONE, _COPIER, _UNTRAINED)),
)
I2 = _I2.against(
    _I2.rival(
        "one-to-many",
        "One previous-token head feeds many induction heads.",
        parts=(most("n_previous", "below", MANY, "heads"), most("n_induction", "above", MANY, "heads")),
        controls=controls(positive=(_FROM_ONE,), negative=(_MANY, _ONE, _TO_ONE)),
    ),
    _I2.rival(
        "one-to-one",
        "One previous-token head feeds one induction head.",
        parts=(most("n_previous", "below", MANY, "heads"), most("n_induction", "below", MANY, "heads")),
        controls=controls(positive=(_ONE,), negative=(_MANY, _FROM_ONE, _TO_ONE)),
    ),
)
CLAIMS.add(I2.id, I2)
