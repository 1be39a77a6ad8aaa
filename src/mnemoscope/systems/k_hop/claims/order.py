"""K4: 1, 2 and 4 hops are learned one after the other, layer by layer."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from mnemoscope import CLAIMS, Gate, InputError, Subject, generator
from mnemoscope.claims import GATE, Case, Explanation, Quantity, case, controls, most
from mnemoscope.models import set_by_hand
from mnemoscope.models.constructed import Course, prescribe_course, step_course
from mnemoscope.systems.k_hop.analyses import exchanged_halves, held_in_order
from mnemoscope.systems.k_hop.claim_parts import CHANCE, LEARNED, MIXTURE, TASK, errors, k_hop_claim, task_of, units
from mnemoscope.systems.k_hop.claims.depth import composer

UNITS = units(MIXTURE)
AT_ONCE = 50
"""Steps."""
N_EXCHANGED = 512


def measure(subject: Subject, *, level: float = CHANCE / 2) -> dict[str, float]:
    """Steps at which the numbers of hops are learned (`hops_1` and so on), `lead`, `last_two`, `held` and `GATE`.

    A number of hops counts as learned at a squared error of `level`.
    """
    tracked, task = subject.trajectory, task_of(subject)
    if tracked is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope track RUN")
    below = {part: tracked.step.where(tracked[f"loss_{part}"] < level).min() for part in task.parts}
    never = 2 * float(tracked.step[-1])
    steps = {part: float(found.fillna(never)) for part, found in below.items()}
    leads = [later - earlier for earlier, later in pairwise(steps.values())]
    base, source = (
        task.sample(N_EXCHANGED, split="test", generator=generator(subject.seed, "exchange", side)) for side in (0, 1)
    )
    held = held_in_order(exchanged_halves(subject.model, task, base, source))
    gate = max(errors(subject).values())
    return {**steps, "lead": min(leads), "last_two": leads[-1], "held": held, GATE: gate}


def _trained(name: str, *steps: float, reached: int = 4) -> Case:
    """A control: the composer, with a planted training in which the numbers of hops are learned at these steps."""
    courses = {
        f"loss_hops_{h}": step_course(step, low=CHANCE, high=0.0) for h, step in zip(TASK.hops, steps, strict=True)
    }
    return case(name, partial(with_trajectory, courses, reached), n=1)


def with_trajectory(courses: Mapping[str, Course], reached: int, number: int) -> dict[str, Subject]:
    """The composer with a planted training."""
    built = set_by_hand(MIXTURE, partial(composer, reached), TASK)(number)[MIXTURE]
    trained = prescribe_course(UNITS, {MIXTURE: courses})(number)[MIXTURE]
    return {MIXTURE: replace(built, trajectory=trained.trajectory)}


_EXPLANATION = Explanation(
    procedure="Checkpoints, 25 steps apart, of a model that is asked for 1, 2 and 4 hops at once are measured after "
    "training. T(h) is the first kept step at which the squared error after h hops lies below 3/32, half of chance, "
    "and twice the last step where there is none. After training 512 fresh sequences are answered with the residual "
    "stream exchanged, behind a layer, at the places where doubling has the second half of the composition: those of "
    "the function h/2 ahead take what they have in another sequence. H(h) is the share of answers that are then put "
    "together from the own first and the other second half, among those which that changes.",
    quantities={
        "lead": Quantity(
            words="by how many steps each number of hops is learned before the next, the smaller of both",
            formula="min(T(2) − T(1), T(4) − T(2))",
        ),
        "held": Quantity(
            words="the interchange accuracy of second halves where doubling has them, the smaller of both: of 2 hops "
            "after the first layer, of 4 after the second",
            formula="min(H(2) after layer 1, H(4) after layer 2)",
        ),
        "last_two": Quantity(words="how many steps later 4 hops are learned than 2", formula="T(4) − T(2)"),
        "hops_1": Quantity(words="the step at which 1 hop is learned", formula="T(1)"),
        "hops_2": Quantity(words="the step at which 2 hops are learned", formula="T(2)"),
        "hops_4": Quantity(words="the step at which 4 hops are learned", formula="T(4)"),
        GATE: Quantity(
            words="the largest squared error at the end, on 2,048 fresh sequences",
            formula="max over h = 1, 2, 4 of e(h)",
        ),
    },
    margins="50 steps are two kept steps: nearer than that, two numbers of hops are learned together. More than half "
    "of the answers must follow the exchange, of which chance gives a quarter. .05, the gate, is about a quarter of "
    "what is left to one who knows nothing.",
    limits="It shows what comes first and where it is held in the end. It does not show that the one is needed for the "
    "other. Known before from seed 1000, which does not count: one hop after some 200 steps, two after some 350, four "
    "after some 850; interchange accuracy 1.00.",
)
_STEPS = "steps"
_in_turn, _tied = _trained("in turn", 200, 400, 800), _trained("2 and 4 hops together", 200, 800, 810)
_backwards, _not_held = _trained("backwards", 800, 400, 200), _trained("4 hops not composed", 200, 400, 800, reached=2)
_K4 = k_hop_claim(
    id="K4",
    statement="Hops 1, 2 and 4 are learned one after the other, layer by layer.",
    units=UNITS,
    gate=Gate(statement=f"learns every number of hops, with an error of at most {LEARNED:g}", at_most=LEARNED),
    measure=measure,
    explanation=_EXPLANATION,
    prompts="own",
    develops=False,
    parts=(most("lead", "above", AT_ONCE, _STEPS), most("held", "above", 0.5, "interchange accuracy")),
    factors={"level": (CHANCE / 4,)},
    controls=controls(positive=(_in_turn,), negative=(_tied, _backwards, _not_held)),
)
K4 = _K4.against(
    _K4.rival(
        "together",
        "Two and four hops are learned within 50 steps of one another.",
        parts=(most("last_two", "below", AT_ONCE, _STEPS),),
        controls=controls(positive=(_tied,), negative=(_in_turn,)),
    ),
)
CLAIMS.add(K4.id, K4)
