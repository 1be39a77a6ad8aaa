"""K4: 1, 2 and 4 hops are learned one after the other, layer by layer."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from mnemoscope import CLAIMS, Gate, InputError, Subject, generator
from mnemoscope.claims import GATE, Case, case, controls, most
from mnemoscope.models import set_by_hand
from mnemoscope.models.constructed import Course, prescribe_course, step_course
from mnemoscope.systems.k_hop.analyses import exchanged_halves, held_in_order
from mnemoscope.systems.k_hop.claim_parts import (
    CHANCE,
    LEARNED,
    MIXTURE,
    TASK,
    TEXTS,
    errors,
    k_hop_claim,
    task_of,
    units,
)
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
        raise InputError("there is no trajectory of this run; track it first: mnemoscope evaluate --checkpoints RUN")
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


_STEPS = "steps"
_in_turn, _tied = _trained("in turn", 200, 400, 800), _trained("2 and 4 hops together", 200, 800, 810)
_backwards, _not_held = _trained("backwards", 800, 400, 200), _trained("4 hops not composed", 200, 400, 800, reached=2)
_K4 = k_hop_claim(
    id="K4",
    statement="Hops 1, 2 and 4 are learned one after the other, layer by layer.",
    units=UNITS,
    gate=Gate(statement=f"learns every number of hops, with an error of at most {LEARNED:g}", at_most=LEARNED),
    measure=measure,
    explanation=TEXTS.explain("K4", at_once=AT_ONCE, n_exchanged=N_EXCHANGED),
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
