"""P1 to P3: what the two heads of the published circuit of palindromes do."""

from functools import partial

from mnemoscope import CLAIMS, HookedModel, Subject
from mnemoscope.claims import GATE, Case, case, controls, most, table
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.palindrome import (
    accuracies,
    called_palindrome,
    common_direction_flips,
    compared,
    comparing,
    direction_cosines,
    read_by_reporter,
    reporting,
    roles,
)
from mnemoscope.systems.puzzles.claim_parts import TEXTS, answers_classes, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.palindrome import (
    COUNTING,
    OWN_DIRECTIONS,
    PUBLISHED,
    SHARED,
    MirrorCircuit,
    mirror_reader,
)
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

PALINDROME = "palindrome"
UNITS = units(PALINDROME)
LEARNED = 0.95
LEARNS = answers_classes(LEARNED)
MOST_PAIRS, HALF, NEEDED, ALIKE, BLIND = 0.65, 0.5, 0.25, 0.8, 0.5
SOURCE = "ARENA, monthly algorithmic problem of July 2023, palindromes"
palindrome_claim = partial(puzzle_claim, source=SOURCE, units=UNITS, gate=LEARNS, prompts="own")


def planted(name: str, circuit: MirrorCircuit) -> Case:
    """A control: a hand-set model in the place of the trained one."""
    return case(name, set_by_hand(PALINDROME, partial(built, circuit), Palindrome()), n=1)


def built(circuit: MirrorCircuit) -> HookedModel:
    """The hand-set model of a circuit."""
    return mirror_reader(circuit)


UNTRAINED = case("untrained", untrained(UNITS))
PUBLISHED_CIRCUIT = planted("the published circuit", PUBLISHED)


def measure_comparison(subject: Subject, *, least: float = HALF) -> dict[str, float]:
    """Shares of the pairs that one head compares (`pairs`), and that some head does (`by_some`).

    A head compares a pair with at least the share `least` of its attention on the pair.
    """
    found = compared(comparing(subject, half=1), least)
    return {
        GATE: min(accuracies(subject).values()),
        "pairs": float(found.sel(head=roles(subject).comparer).mean()),
        "by_some": float(found.any("head").mean()),
    }


def measure_report(subject: Subject) -> dict[str, float]:
    """The attention of the reporter on broken pairs (`looks`), and shares lost by what it reads."""
    reporter = roles(subject).reporter
    return {
        GATE: min(accuracies(subject).values()),
        "looks": float(reporting(subject, half=1).sel(head=reporter)),
        **read_by_reporter(subject),
    }


def measure_direction(subject: Subject) -> dict[str, float]:
    """The median cosine of difference vectors of places that are not blind, and what adding the common one does.

    `flips` is the share of palindromes called broken, mean over these places; `lowest` the smallest cosine; `n_places`
    the number of places. All are 0 where fewer than two places are not blind.
    """
    seen = (called_palindrome(subject) < BLIND).values.nonzero()[0].tolist()
    found = {GATE: min(accuracies(subject).values()), "cosine": 0.0, "flips": 0.0, "lowest": 0.0}
    if len(seen) > 1:
        cosines = direction_cosines(subject).sel(pair=seen, other_pair=seen)
        pairs = cosines.where(cosines.pair < cosines.other_pair)
        found |= {
            "cosine": float(pairs.median()),
            "lowest": float(pairs.min()),
            "flips": float(common_direction_flips(subject).sel(pair=seen).mean()),
        }
    return {**found, "n_places": float(len(seen))}


_shared, _counting = planted("two heads share the pairs", SHARED), planted("counts broken pairs", COUNTING)
_own = planted("one direction per place", OWN_DIRECTIONS)
_P1 = palindrome_claim(
    id="P1",
    statement="One head of layer 0 looks at the mirror image of an equal value, and at itself otherwise.",
    measure=measure_comparison,
    explanation=TEXTS.explain("P1", most_pairs=MOST_PAIRS),
    parts=(most("pairs", "above", MOST_PAIRS, "share of the pairs"),),
    choices={"least": (HALF / 2,)},
    controls=controls(positive=(PUBLISHED_CIRCUIT,), negative=(_shared, UNTRAINED)),
)
P1 = _P1.against(
    _P1.rival(
        "shared",
        "Two heads of layer 0 share the pairs, and neither compares most of them.",
        parts=(
            most("pairs", "below", MOST_PAIRS, "share of the pairs"),
            most("by_some", "above", MOST_PAIRS, "share of the pairs"),
        ),
        controls=controls(positive=(_shared,), negative=(PUBLISHED_CIRCUIT, UNTRAINED)),
    ),
)
_P2 = palindrome_claim(
    id="P2",
    statement="One head of layer 1 looks from END at broken pairs, and reads places, not values, of the other head.",
    measure=measure_report,
    explanation=TEXTS.explain("P2", half=HALF, needed=NEEDED),
    parts=(
        most("looks", "above", HALF, "share of attention"),
        most("keys", "above", NEEDED, "share of the logit difference"),
        most("values", "above", NEEDED, "share of the logit difference"),
        most("tokens", "below", NEEDED, "share of the logit difference"),
    ),
    controls=controls(positive=(PUBLISHED_CIRCUIT,), negative=(_counting, UNTRAINED)),
)
P2 = _P2.against(
    _P2.rival(
        "counts",
        "The head of layer 1 looks everywhere, and adds up what it reads through values.",
        parts=(
            most("looks", "below", HALF, "share of attention"),
            most("keys", "below", NEEDED, "share of the logit difference"),
            most("values", "above", NEEDED, "share of the logit difference"),
        ),
        controls=controls(positive=(_counting,), negative=(PUBLISHED_CIRCUIT, UNTRAINED)),
    ),
    _P2.rival(
        "tokens",
        "What the head of layer 1 reads is the values that differ.",
        parts=(most("tokens", "above", NEEDED, "share of the logit difference"),),
        controls=controls(
            positive=(table("reads values", {PALINDROME: {"tokens": 1.0, GATE: 1.0}}),),
            negative=(PUBLISHED_CIRCUIT, UNTRAINED),
        ),
    ),
)
_P3 = palindrome_claim(
    id="P3",
    statement="That a pair is broken is one direction, the same at all places that are not blind.",
    measure=measure_direction,
    explanation=TEXTS.explain("P3", alike=ALIKE, half=HALF, blind=BLIND),
    parts=(most("cosine", "above", ALIKE, "cosine"), most("flips", "above", HALF, "share of palindromes")),
    controls=controls(positive=(PUBLISHED_CIRCUIT,), negative=(_own, UNTRAINED)),
)
P3 = _P3.against(
    _P3.rival(
        "own",
        "Every place has a direction of its own.",
        parts=(most("cosine", "below", HALF, "cosine"),),
        controls=controls(positive=(_own,), negative=(PUBLISHED_CIRCUIT,)),
    ),
)
for _claim in (P1, P2, P3):
    CLAIMS.add(_claim.id, _claim)
