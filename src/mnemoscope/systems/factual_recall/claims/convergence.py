"""F3: linear attention on one-hot embeddings reaches zero loss."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mnemoscope import CLAIMS, Criterion, Subject, generator
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models import untrained
from mnemoscope.models.constructed import predict_exactly, prescribe_course
from mnemoscope.systems.factual_recall.analyses import split_loss
from mnemoscope.systems.factual_recall.claim_parts import (
    FIRST_DRAWN,
    LINEAR,
    SIZES,
    TEXTS,
    course,
    facts_claim,
    followed,
    task_of,
)

ZERO, STILL = 0.1, 0.9
N_SEQUENCES = 4096


def loss_at_end(subject: Subject) -> Measured:
    """Loss of the last checkpoint on fresh sequences, its part of the subject, in nats, and what is left of it.

    They are `loss`, `loss_subject`, and `left`: from the trajectory, the final loss as a share of that at three
    quarters of the steps.
    """
    task, tracked = task_of(subject), followed(subject).loss
    batch = task.sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "convergence"))
    found = split_loss(subject.model, task, batch)
    earlier = tracked.sel(step=0.75 * tracked.step[-1], method="nearest")
    return {
        **{name: float(found[name]) for name in ("loss", "loss_subject")},
        "left": float(tracked[-1] / earlier),
    }


def _falling(subjects: Callable[[int], dict[str, Subject]], before: float, after: float, n: int) -> dict[str, Subject]:
    """Models with a planted training: the loss at three quarters of the steps and at the end."""
    courses = {**course(1800, 4500), "loss": ((6144.0, before), (8192.0, after))}
    trained = prescribe_course(LINEAR, dict.fromkeys(LINEAR, courses))(n)
    return {name: replace(each, trajectory=trained[name].trajectory) for name, each in subjects(n).items()}


def _ends(name: str, subjects: Callable[[int], dict[str, Subject]], before: float, after: float) -> Case:
    """A control: models, and the loss that they had at three quarters of their steps and at the end."""
    return case(name, partial(_falling, subjects, before, after))


_FACT = _ends("knows the facts, and its loss falls", predict_exactly(LINEAR, "fact"), 0.04, 0.02)
_STAYS = _ends("knows the facts, and its loss stays", predict_exactly(LINEAR, "fact"), 0.05, 0.05)
_RELATION = _ends("says p(a | r)", predict_exactly(LINEAR, "relation"), 1.8, 1.2)
_UNTRAINED = _ends("untrained", untrained(LINEAR), 3.5, 3.4)
_F3 = facts_claim(
    id="F3",
    statement="Linear attention on one-hot embeddings reaches zero loss: little is left, and it still falls.",
    units=LINEAR,
    first_seed=FIRST_DRAWN,
    version=2,
    measure=loss_at_end,
    explanation=TEXTS.explain("F3", zero=ZERO, n_sequences=N_SEQUENCES),
    prompts="own",
    develops=False,
    parts=(
        Criterion(name="loss", quantifier="every", margin=ZERO, direction="below", unit="nats"),
        Criterion(name="left", quantifier="every", margin=STILL, direction="below", unit="share of the loss"),
    ),
    factors={"model.initial_size": SIZES},
    controls=controls(positive=(_FACT,), negative=(_STAYS, _RELATION, _UNTRAINED)),
)
F3 = _F3.against(
    _F3.rival(
        "relation",
        "It stays at knowing the relation alone.",
        parts=(most("loss_subject", "above", 1.04, "nats"),),
        controls=controls(positive=(_RELATION,), negative=(_FACT,)),
    ),
    _F3.rival(
        "stalls",
        "Its loss no longer falls.",
        parts=(most("left", "above", STILL, "share of the loss"),),
        controls=controls(positive=(_STAYS,), negative=(_FACT, _RELATION)),
    ),
)
CLAIMS.add(F3.id, F3)
