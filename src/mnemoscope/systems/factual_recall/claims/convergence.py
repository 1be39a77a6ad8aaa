"""F3: linear attention on one-hot embeddings reaches zero loss."""

from mnemoscope import CLAIMS, Criterion, Subject, generator
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models import untrained
from mnemoscope.models.constructed import predict_exactly, prescribe_course
from mnemoscope.systems.factual_recall.analyses import split_loss
from mnemoscope.systems.factual_recall.claim_parts import LINEAR, TEXTS, course, facts_claim, followed, task_of

ZERO, STILL = 0.1, 0.9
N_SEQUENCES = 4096


def loss_at_end(subject: Subject) -> Measured:
    """Loss of the last checkpoint on fresh sequences, and its part of the subject (`loss`, `loss_subject`), in nats."""
    task = task_of(subject)
    batch = task.sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "convergence"))
    found = split_loss(subject.model, task, batch)
    return {name: float(found[name]) for name in ("loss", "loss_subject")}


def left_of_it(subject: Subject) -> Measured:
    """The final loss as a share of the loss at three quarters of the steps, from the trajectory (`left`)."""
    loss = followed(subject).loss
    return {"left": float(loss[-1] / loss.sel(step=0.75 * loss.step[-1], method="nearest"))}


def _ends(name: str, before: float, after: float) -> Case:
    """A control of F3-stalls: the loss at three quarters of the steps and at the end."""
    courses = {**course(1800, 4500), "loss": ((6144.0, before), (8192.0, after))}
    return case(name, prescribe_course(LINEAR, dict.fromkeys(LINEAR, courses)), n=1)


_FACT, _RELATION = (
    case("knows the facts", predict_exactly(LINEAR, "fact")),
    case("says p(a | r)", predict_exactly(LINEAR, "relation")),
)
_UNTRAINED = case("untrained", untrained(LINEAR))
_F3 = facts_claim(
    id="F3",
    statement="Linear attention on one-hot embeddings reaches zero loss.",
    units=LINEAR,
    measure=loss_at_end,
    explanation=TEXTS.explain("F3", zero=ZERO, n_sequences=N_SEQUENCES),
    prompts="own",
    parts=(Criterion(name="loss", quantifier="every", margin=ZERO, direction="below", unit="nats"),),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_FACT,), negative=(_RELATION, _UNTRAINED)),
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
        measure=left_of_it,
        explanation=TEXTS.explain("F3-stalls"),
        develops=False,
        parts=(most("left", "above", STILL, "share of the loss"),),
        controls=controls(positive=(_ends("stays", 0.5, 0.5),), negative=(_ends("falls by a quarter", 0.5, 0.375),)),
    ),
)
CLAIMS.add(F3.id, F3)
