"""R4 and R7: in which order symbols are learned, and the paths of attention that they need.

R4 is about the losses as they were followed, so that one exception counts.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from mnemoscope import CLAIMS, Criterion, InputError, Subject
from mnemoscope.claims import GATE, Case, case, controls, most
from mnemoscope.models import set_by_hand
from mnemoscope.models.constructed import Course, prescribe_course, step_course
from mnemoscope.systems.retrieval.circuit_effects import onset, take_apart
from mnemoscope.systems.retrieval.claim_parts import (
    CHAINS,
    FIRST_OF_THREE,
    FOLLOWS,
    LAST_OF_THREE,
    TASK,
    TEXTS,
    WHOLE_CHAIN,
    retrieval,
    task_of,
)
from mnemoscope.systems.retrieval.claims.circuits import follower

HALF = 0.5
AT_ONCE = 100
"""Steps."""


def falls(subject: Subject, *, level: float = HALF) -> dict[str, float]:
    """The steps at which the loss of every symbol first falls below a squared error (`x1` and so on), and `GATE`.

    Beside them, in steps, the smallest lead that a symbol has over the next one (`lead`), and by how much the last
    comes after the one before it (`last_two`).
    """
    tracked = subject.trajectory
    if tracked is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope evaluate --checkpoints RUN")
    steps = {part: onset(tracked[f"loss_{part}"] < level) for part in task_of(subject).parts}
    leads = [later - earlier for earlier, later in pairwise(steps.values())]
    final = max(float(tracked[f"loss_{part}"][-1]) for part in steps)
    return {**steps, "lead": min(leads), "last_two": leads[-1], GATE: final}


def losses(*steps: float) -> dict[str, Course]:
    """A planted training: the loss of each symbol falls from 1 to 0 at a step."""
    return {f"loss_x{number}": step_course(step, low=1.0, high=0.0) for number, step in enumerate(steps, 1)}


def attention(pairs: float, *hops: float, slow: float = 0) -> dict[str, Course]:
    """A planted training: attention rises from 0 to 1 at `pairs` within pairs, and at `hops` from the query to each
    pair.

    The query's attention to the first pair begins to rise `slow` steps earlier, and is complete as many steps later.
    """
    within = {f"{2 * step}→{2 * step - 1}": step_course(pairs) for step in range(1, len(hops) + 1)}
    hopping = {f"0→{2 * number}": step_course(step) for number, step in enumerate(hops, 1)}
    if slow:
        hopping["0→2"] = ((hops[0] - slow, 0.0), (hops[0], HALF), (hops[0] + slow, 1.0))
    return {**within, **hopping}


def _trained(name: str, *steps: float) -> Case:
    return case(name, prescribe_course(WHOLE_CHAIN, {CHAINS: losses(*steps)}), n=1)


def _emerging(name: str, *steps: float, slow: float = 0) -> Case:
    """A control: the built circuit at the end, attention rising at these steps."""
    return case(name, partial(with_trajectory, attention(*steps, slow=slow)), n=1)


def with_trajectory(courses: Mapping[str, Course], number: int) -> dict[str, Subject]:
    """The hand-set chain follower with a planted training."""
    built = set_by_hand(CHAINS, follower, TASK)(number)[CHAINS]
    trained = prescribe_course(WHOLE_CHAIN, {CHAINS: courses})(number)[CHAINS]
    return {CHAINS: replace(built, trajectory=trained.trajectory)}


_STEPS = "steps"
_in_order, _close = _trained("in order", 400, 800, 1600), _trained("in order, close together", 400, 475, 550)
_tied, _reversed = _trained("the last two together", 400, 800, 800), _trained("backwards", 1600, 800, 400)
_KEPT = "Checkpoints that were kept along training, 25 steps apart, are measured afterwards."
_R4 = retrieval(
    id="R4",
    statement="Partial losses fall below .5 in the order of the chain, in every run.",
    units=WHOLE_CHAIN,
    first_seed=FIRST_OF_THREE,
    last_seed=LAST_OF_THREE,
    gate=FOLLOWS,
    measure=falls,
    explanation=TEXTS.explain("R4"),
    prompts="enumerated",
    develops=False,
    parts=(Criterion(name="lead", quantifier="every", margin=0.0, direction="above", unit=_STEPS),),
    factors={"level": (0.25,)},
    controls=controls(positive=(_in_order, _close), negative=(_tied, _reversed)),
)
R4 = _R4.against(
    _R4.rival(
        "together",
        "The last two symbols are learned within 100 steps of one another.",
        parts=(most("last_two", "below", AT_ONCE, _STEPS),),
        controls=controls(positive=(_close, _tied), negative=(_in_order,)),
    ),
)
_one_by_one = _emerging("one by one", 300, 400, 800, 1600)
_hop_first = _emerging("the second hop first", 300, 800, 400, 1600)
_slowly = _emerging("slowly", 300, 400, 800, 1600, slow=300)
_at_once = _emerging("at once", 400, 400, 400, 400)
_R7 = retrieval(
    id="R7",
    statement="Paths emerge in sequence: an induction head first and abruptly, which later heads reuse.",
    units=WHOLE_CHAIN,
    first_seed=FIRST_OF_THREE,
    last_seed=LAST_OF_THREE,
    gate=FOLLOWS,
    measure=take_apart,
    explanation=TEXTS.explain("R7"),
    develops=False,
    parts=(
        most("induction_first", "above", 0.0, _STEPS),
        most("width", "below", 0.25, "share of the steps until then"),
        most("reused", "above", 0.25, "squared error"),
    ),
    factors={"tolerance": (0.02, 0.1)},
    controls=controls(positive=(_one_by_one,), negative=(_hop_first, _slowly, _at_once)),
)
R7 = _R7.against(
    _R7.rival(
        "at-once",
        "All paths emerge within 100 steps.",
        parts=(most("spread", "below", AT_ONCE, _STEPS),),
        controls=controls(positive=(_at_once,), negative=(_one_by_one, _hop_first)),
    ),
)
for _claim in (R4, R7):
    CLAIMS.add(_claim.id, _claim)
