"""P6 and P7: how repeated letters are suppressed, and whether letters are shared out among heads."""

from functools import partial

from mnemoscope import CLAIMS, Gate, HookedModel, Subject
from mnemoscope.analyses import subject_division
from mnemoscope.claims import EFFECT, GATE, Case, case, controls, most
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.first_unique import (
    DUPLICATE,
    accuracy,
    letter_effects,
    letter_shares,
    suppression,
)
from mnemoscope.systems.puzzles.claim_parts import TEXTS, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.first_unique import Sharing, Values, counter, suppressor
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique

PRESET = "first-unique"
UNITS = units(PRESET)
LEARNED = 0.9
SOURCE = "ARENA, monthly algorithmic problem, first unique character"
THROUGH, QUERIES = 0.1, 0.5
OWN, GRADED, SINGLE = 0.6, 0.6, 0.8
_DIFFERENCE = "share of the logit difference"
first_unique_claim = partial(
    puzzle_claim,
    source=SOURCE,
    units=UNITS,
    gate=Gate(statement=f"names {100 * LEARNED:g} % of the first letters and of later ones or more", at_least=LEARNED),
    prompts="own",
)


def measure_suppression(subject: Subject) -> dict[str, float]:
    """The shares that go from duplicate-token heads through keys and values, and from all heads through queries."""
    return {GATE: accuracy(subject), **suppression(subject)}


def measure_sharing(subject: Subject) -> dict[str, float]:
    """The division of the letters among heads of layer 1 (`EFFECT`), and what its rivals say, as `letter_shares`.

    Beside them `bounded`, the division by accuracy, on the scale of all systems.
    """
    effects = letter_effects(subject)
    found = letter_shares(effects)
    division = found.pop("division")
    return {GATE: accuracy(subject), EFFECT: division, "bounded": subject_division(subject)["division"], **found}


def suppressing(sharing: Sharing, values: Values) -> HookedModel:
    """A hand-set model that suppresses."""
    return suppressor(FirstUnique(), sharing=sharing, values=values)


def counting() -> HookedModel:
    """A hand-set model that counts."""
    return counter(FirstUnique())


def _built(name: str, sharing: Sharing = "own", values: Values = "both") -> Case:
    return case(name, set_by_hand(PRESET, partial(suppressing, sharing, values), FirstUnique()), n=1)


UNTRAINED = case("untrained", untrained(UNITS), n=2)
_counted = case("counting", set_by_hand(PRESET, counting, FirstUnique()), n=1)
_own, _single, _graded = _built("own letters"), _built("one head", "single"), _built("graded", "graded")
_by_keys, _by_values = _built("by keys", "own", "token"), _built("by values", "own", "copied")
_P6 = first_unique_claim(
    id="P6",
    statement="Duplicate-token heads make heads of layer 1 suppress repeated letters, through keys and values.",
    measure=measure_suppression,
    explanation=TEXTS.explain("P6", duplicate=DUPLICATE, through=THROUGH, queries=QUERIES),
    parts=(most("keys", "above", THROUGH, _DIFFERENCE), most("values", "above", THROUGH, _DIFFERENCE)),
    controls=controls(positive=(_own,), negative=(_counted, _by_keys, UNTRAINED)),
)
P6 = _P6.against(
    _P6.rival(
        "keys",
        "They do so through keys alone.",
        parts=(most("keys", "above", THROUGH, _DIFFERENCE), most("values", "below", THROUGH, _DIFFERENCE)),
        controls=controls(positive=(_by_keys,), negative=(_own, _counted, UNTRAINED)),
    ),
    _P6.rival(
        "queries",
        "Repetitions reach layer 1 through its queries: the asking place has counted.",
        parts=(most("queries", "above", QUERIES, _DIFFERENCE),),
        controls=controls(positive=(_counted,), negative=(_own, _by_values)),
    ),
)
_P7 = first_unique_claim(
    id="P7",
    statement="The heads of layer 1 share out the alphabet: each letter belongs to one head.",
    quantifier="most",
    margin=OWN,
    unit="share",
    measure=measure_sharing,
    explanation=TEXTS.explain("P7", own=OWN, graded=GRADED, single=SINGLE),
    controls=controls(positive=(_own,), negative=(_single, _graded, UNTRAINED)),
)
P7 = _P7.against(
    _P7.rival(
        "graded",
        "Sharing is graded: every head has a bit of every letter.",
        parts=(most("share", "below", GRADED, "share of the effect"),),
        controls=controls(positive=(_graded,), negative=(_own, _single)),
    ),
    _P7.rival(
        "single",
        "One head has all letters.",
        parts=(most("largest", "above", SINGLE, "share of the effect"),),
        controls=controls(positive=(_single,), negative=(_own, _graded, UNTRAINED)),
    ),
)
for _claim in (P6, P7):
    CLAIMS.add(_claim.id, _claim)
