"""P11 and P12: heads look at the next larger value and copy it, and share out the values."""

from collections.abc import Callable
from functools import partial

from mnemoscope import CLAIMS, Gate, HookedModel, Subject
from mnemoscope.claims import GATE, Case, case, controls, most
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.sorted_list import (
    N_LISTS,
    N_PREDICTED,
    N_SHUFFLES,
    accuracy,
    looks_and_copies,
    sharing,
)
from mnemoscope.systems.puzzles.claim_parts import TEXTS, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.sorted_list import (
    TASK,
    bag_model,
    graded_model,
    patchwork_model,
    range_model,
    single_model,
)

UNITS = units("sorted-list")
SORTS = 0.99
LOOKS, COPIES, PREDICTED, CAUSES = 0.75, 0.9, 0.5, 0.5
DIVIDED, RANGE, MOSTLY, GRADED = 0.5, 0.75, 0.9, 0.75
_ANSWERS, _VALUES, _EFFECT = "share of the answers", "share of the values", "share of the effect"


def looking(subject: Subject) -> dict[str, float]:
    """The parts of P11, and the accuracy."""
    return {**looks_and_copies(subject), GATE: accuracy(subject)}


def sharing_out(subject: Subject) -> dict[str, float]:
    """The parts of P12, and the accuracy."""
    return {**sharing(subject), GATE: accuracy(subject)}


def _built(name: str, make: Callable[[], HookedModel]) -> Case:
    return case(name, set_by_hand("sorted-list", make, TASK), n=1)


_RANGE, _PATCHWORK = _built("a range for one head", range_model), _built("every other value", patchwork_model)
_SINGLE, _GRADED = _built("one head for all", single_model), _built("both heads for all", graded_model)
_BAG, _UNTRAINED = _built("a bag of values", bag_model), case("untrained", untrained(UNITS))
_of_lists = partial(
    puzzle_claim,
    units=UNITS,
    gate=Gate(statement="gives 99 % of the sorted values right", at_least=SORTS),
    prompts="own",
    factors={"recipe": ("published",)},
)
_P11 = _of_lists(
    id="P11",
    statement="From each value the heads look at the next larger one and copy it, as their QK and OV circuits say.",
    source="ARENA, monthly algorithmic problem: sorted list",
    measure=looking,
    explanation=TEXTS.explain(
        "P11", n_lists=N_LISTS, n_predicted=N_PREDICTED, looks=LOOKS, copies=COPIES, predicted=PREDICTED
    ),
    parts=(
        most("looks", "above", LOOKS, _ANSWERS),
        most("copies", "above", COPIES, _VALUES),
        most("predicted", "above", PREDICTED, "correlation"),
        most("causes", "above", CAUSES, "accuracy"),
    ),
    controls=controls(positive=(_RANGE, _PATCHWORK, _SINGLE), negative=(_BAG, _UNTRAINED)),
)
P11 = _P11.against(
    _P11.rival(
        "bag",
        "A head adds up which values are there, and the unembedding picks the next one.",
        parts=(most("looks", "below", 0.5, _ANSWERS), most("copies", "above", COPIES, _VALUES)),
        controls=controls(positive=(_BAG,), negative=(_RANGE, _UNTRAINED)),
    ),
)
_P12 = _of_lists(
    id="P12",
    statement="The two heads share out the values: a range for one, the rest for the other.",
    source="ARENA, monthly algorithmic problem: sorted list",
    measure=sharing_out,
    explanation=TEXTS.explain(
        "P12", n_lists=N_LISTS, n_shuffles=N_SHUFFLES, divided=DIVIDED, range=RANGE, graded=GRADED
    ),
    parts=(
        most("division", "above", DIVIDED, _EFFECT),
        most("range", "above", RANGE, _VALUES),
        most("larger", "below", MOSTLY, _VALUES),
    ),
    controls=controls(positive=(_RANGE,), negative=(_PATCHWORK, _SINGLE, _GRADED, _UNTRAINED)),
)
P12 = _P12.against(
    _P12.rival(
        "single",
        "One head does it all.",
        parts=(most("larger", "above", MOSTLY, _VALUES),),
        controls=controls(positive=(_SINGLE,), negative=(_RANGE, _PATCHWORK)),
    ),
    _P12.rival(
        "graded",
        "Both heads serve every value.",
        parts=(most("share", "below", GRADED, _EFFECT),),
        controls=controls(positive=(_GRADED,), negative=(_RANGE, _SINGLE)),
    ),
    _P12.rival(
        "accident",
        "The heads share out the values, and which of them a head has is an accident: they form no range.",
        parts=(
            most("division", "above", DIVIDED, _EFFECT),
            most("range", "below", RANGE, _VALUES),
            most("larger", "below", MOSTLY, _VALUES),
        ),
        controls=controls(positive=(_PATCHWORK,), negative=(_RANGE, _SINGLE, _GRADED)),
    ),
)
for _claim in (P11, P12):
    CLAIMS.add(_claim.id, _claim)
