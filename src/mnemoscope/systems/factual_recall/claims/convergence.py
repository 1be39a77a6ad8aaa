"""F3: linear attention on one-hot embeddings reaches zero loss."""

from mnemoscope import CLAIMS, Criterion, Subject, generator
from mnemoscope.claims import Case, Explanation, Measured, Quantity, case, controls, most
from mnemoscope.models import untrained
from mnemoscope.models.constructed import predict_exactly, prescribe_course
from mnemoscope.systems.factual_recall.analyses.stages import split_loss
from mnemoscope.systems.factual_recall.claim_parts import LINEAR, course, facts_claim, followed, task_of

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
_FACTS_AND_SEEDS = (
    "The facts are a(s, r) of 16 subjects s and 4 relations r, with eight answers to each relation. Seeds differ in "
    "the sequences alone: embeddings, facts and initial weights are the same in all."
)
_AT_END = Explanation(
    procedure=f"{_FACTS_AND_SEEDS} After plain gradient descent for 2¹³ steps at the published rate, on batches of 128 "
    "(published 1,024), the model answers 4,096 fresh sequences of its seed. A_r are the answers to the relation.",
    quantities={
        "loss": Quantity(words="the loss, in nats", formula="mean of −ln p(a(s, r))"),
        "loss_subject": Quantity(
            words="the part of the loss that is about the subject: which of the answers to the relation it is, in nats",
            formula="mean of −ln(p(a(s, r)) ÷ p(A_r))",
        ),
    },
    margins="Zero is read as less than .1 nats, 3 % of what guessing costs, ln 32. F3-relation asks for more than half "
    "of ln 8, which is what the subject's part costs as long as the subject plays none.",
    limits="It shows where this training ends. It does not show that the limit is zero: the theorem is about gradient "
    "flow on the expected loss from a small start. Known before from seed 1000, which does not count: a loss of .01 at "
    "the end, and .013 at step 7,168.",
)
_LEFT = Explanation(
    procedure=f"{_FACTS_AND_SEEDS} Checkpoints that were kept along training are measured afterwards on 1,024 fresh "
    "sequences.",
    quantities={
        "left": Quantity(
            words="what is left at the end of the loss that the model had after three quarters of the steps",
            formula="loss(2¹³) ÷ loss(¾ · 2¹³)",
        )
    },
    margins="A loss that falls by less than a tenth in the last quarter of the steps no longer falls; 1 is standing "
    "still.",
    limits="It shows that the loss has come to rest, at whatever level.",
)
_F3 = facts_claim(
    id="F3",
    statement="Linear attention on one-hot embeddings reaches zero loss.",
    units=LINEAR,
    measure=loss_at_end,
    explanation=_AT_END,
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
        explanation=_LEFT,
        develops=False,
        parts=(most("left", "above", STILL, "share of the loss"),),
        controls=controls(positive=(_ends("stays", 0.5, 0.5),), negative=(_ends("falls by a quarter", 0.5, 0.375),)),
    ),
)
CLAIMS.add(F3.id, F3)
