"""R4 and R7: in which order symbols are learned, and the paths of attention that they need.

R4, "the partial losses fall below .5 in the order of the chain, in every run", is refuted if in some seed a later
symbol falls as early as the one before it. Rival R4-together: the last two symbols fall within 100 steps of one
another, in most seeds.

R7, "paths emerge in sequence, an induction head first and abruptly, and later heads reuse it", is refuted if in most
seeds one of these fails. Of the circuit of the trained model (`claims.circuits`) each path sets in at the first kept
step at which the head that attends most along it gives it half of its attention. The induction head is two paths: from
the second symbol of a pair to the first, and from the query to the second symbol of its pair of step 1. With T the step
at which both are there, and A(t) the attention of the latter::

    induction_first = onset of the first other path - T
    width = (first t with A >= .5 - last t before it with A <= .2) / that first t
    reused = rise of the error of the last symbol without the path of the query, later heads attending as they do

`induction_first` has to be above 0, `width` below 1/4, `reused` above 1/4, a third of what guessing costs. Rival
R7-at-once: all paths set in within 100 steps. A path that no head gives half of its attention at any kept step sets in
one step after the last.

R4 is about the losses as they were followed, so that one exception counts. Read from the trajectory: measures of every
kept checkpoint, 25 steps apart at first, taken after training. They show what comes first. They do not show that the
one is needed for the other: `reused` is about the trained model.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from mnemoscope import CLAIMS, Criterion, InputError, Subject
from mnemoscope.judging import GATE, Case, case, controls, most
from mnemoscope.models import planted
from mnemoscope.models.constructed import Course, following, jump
from mnemoscope.systems.retrieval.circuit_effects import onset, take_apart
from mnemoscope.systems.retrieval.claim_parts import CHAINS, FOLLOWS, TASK, WHOLE_CHAIN, retrieval, task_of
from mnemoscope.systems.retrieval.claims.circuits import follower

HALF = 0.5
AT_ONCE = 100
"""Steps."""


def falls(subject: Subject, *, level: float = HALF) -> dict[str, float]:
    """When the loss of every symbol first falls below a level (`x1` and so on), the smallest lead that a symbol has
    over the next one (`lead`), by how much the last comes after the one before it (`last_two`), in steps, and `GATE`.

    Args:
        subject: With a trajectory.
        level: Squared error.

    Raises:
        InputError: There is no trajectory.
    """
    tracked = subject.trajectory
    if tracked is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope track RUN")
    steps = {part: onset(tracked[f"loss_{part}"] < level) for part in task_of(subject).parts}
    leads = [later - earlier for earlier, later in pairwise(steps.values())]
    final = max(float(tracked[f"loss_{part}"][-1]) for part in steps)
    return {**steps, "lead": min(leads), "last_two": leads[-1], GATE: final}


def losses(*steps: float) -> dict[str, Course]:
    """A planted training: the loss of each symbol falls from 1 to 0 at a step."""
    return {f"loss_x{number}": jump(step, low=1.0, high=0.0) for number, step in enumerate(steps, 1)}


def attention(pairs: float, *hops: float, slow: float = 0) -> dict[str, Course]:
    """A planted training: attention within pairs, and from the query to each step, rises from 0 to 1 at a step.

    Args:
        pairs: Step at which it rises within pairs.
        hops: The same of the query, by step of the chain.
        slow: For how many steps the query's to the first pair rises.
    """
    within = {f"{2 * step}→{2 * step - 1}": jump(pairs) for step in range(1, len(hops) + 1)}
    hopping = {f"0→{2 * number}": jump(step) for number, step in enumerate(hops, 1)}
    if slow:
        hopping["0→2"] = ((hops[0] - slow, 0.0), (hops[0], HALF), (hops[0] + slow, 1.0))
    return {**within, **hopping}


def _trained(name: str, *steps: float) -> Case:
    return case(name, following(WHOLE_CHAIN, {CHAINS: losses(*steps)}), n=1)


def _emerging(name: str, *steps: float, slow: float = 0) -> Case:
    """A control: the built circuit at the end, attention rising at these steps."""
    return case(name, partial(with_trajectory, attention(*steps, slow=slow)), n=1)


def with_trajectory(courses: Mapping[str, Course], number: int) -> dict[str, Subject]:
    """The hand-set chain follower with a planted training."""
    built = planted(CHAINS, follower, TASK)(number)[CHAINS]
    trained = following(WHOLE_CHAIN, {CHAINS: courses})(number)[CHAINS]
    return {CHAINS: replace(built, trajectory=trained.trajectory)}


_STEPS = "steps"
_in_order, _close = _trained("in order", 400, 800, 1600), _trained("in order, close together", 400, 475, 550)
_tied, _reversed = _trained("the last two together", 400, 800, 800), _trained("backwards", 1600, 800, 400)
_R4 = retrieval(
    id="R4",
    statement="Partial losses fall below .5 in the order of the chain, in every run.",
    units=WHOLE_CHAIN,
    gate=FOLLOWS,
    measure=falls,
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
    gate=FOLLOWS,
    measure=take_apart,
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
