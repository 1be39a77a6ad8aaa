"""Parts that several claims share: configurations, seeds, and trainings that are planted for them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import xarray as xr

from mnemoscope import Claim, Configuration, InputError, Subject
from mnemoscope.claims import ClaimTexts
from mnemoscope.models.constructed import Course, step_course
from mnemoscope.systems.factual_recall.analyses import facts_task
from mnemoscope.systems.factual_recall.tasks import FactualRecall

SOURCE = "Nichani, Lee & Bietti 2025, Understanding factual recall in transformers via associative memories"
FIRST_SEED = 16
"""Seeds from 1000 on were looked at while recipes were chosen."""
FIRST_DRAWN = 64
"""The first seed of models whose facts and initial weights are drawn by the seed."""
DRAWN = "facts-linear-drawn"
LINEAR = {DRAWN: Configuration(preset=DRAWN)}
SIZES = (0.01, 0.02, 0.1, 0.3)
"""Standard deviations of initial weights that the claims about linear attention vary; judged is 1e-5."""
SOFTMAX = {"facts-softmax": Configuration(preset="facts-softmax")}

TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml")
"""The texts of the claims, from `texts.yaml`."""
facts_claim = partial(Claim, system="factual-recall", source=SOURCE, first_seed=FIRST_SEED)


def task_of(subject: Subject) -> FactualRecall:
    """The task of a subject; an `InputError` unless it is factual recall."""
    return facts_task(subject.task)


def followed(subject: Subject) -> xr.Dataset:
    """The measures of every checkpoint; an `InputError` where nothing was tracked."""
    if subject.trajectory is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope evaluate --checkpoints RUN")
    return subject.trajectory


def course(relation: float, fact: float, *, by_subject: float | None = None) -> Mapping[str, Course]:
    """A planted training of 16 x 4 facts with eight answers a relation.

    The model knows the relation from step `relation` and the fact from step `fact` on; between the two it says p(a |
    r). From step `by_subject` on, if there is one, it says p(a | s) until the fact is known.
    """
    far = 1.4
    near_subject = () if by_subject is None else ((by_subject - 0.5, far), (by_subject, 0.0))
    return {
        "loss": ((relation - 0.5, 3.47), (relation, 2.08), (fact - 0.5, 2.08), (fact, 0.01)),
        "loss_relation": step_course(relation, low=1.39, high=0.0),
        "loss_subject": step_course(fact, low=2.08, high=0.01),
        "kl_relation": ((relation - 0.5, far), (relation, 0.0), (fact - 0.5, 0.0), (fact, 4.0)),
        "kl_subject": (*near_subject, (fact - 0.5, 0.0 if near_subject else far), (fact, 4.0)),
    }
