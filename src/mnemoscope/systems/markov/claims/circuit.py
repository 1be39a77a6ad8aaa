"""E5: the two heads are a previous-token head and an induction head that reads it through its keys."""

from mnemoscope import CLAIMS, Gate, Subject
from mnemoscope.claims import GATE, case, controls, most
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.markov.analyses.attention import attention_shares
from mnemoscope.systems.markov.analyses.distances import divergences
from mnemoscope.systems.markov.analyses.paths import first_head_paths
from mnemoscope.systems.markov.claim_parts import (
    HALF,
    TASK,
    TEXTS,
    THREE,
    astray_by_hand,
    counting_by_hand,
    induction_by_hand,
    markov_claim,
    sequences,
    units,
)

UNITS = units(THREE)
ABOVE = 0.25
_ATTENTION, _SHARE = "share of attention", "share of the effect"


def measure(subject: Subject) -> dict[str, float]:
    """Attention of both heads, the share of the first head's effect that goes through keys, and that of the gap closed.

    The share is that of keys in the sizes of all ways; it is 0 where the model does not tell both sequences apart.
    """
    batch = sequences(subject)
    shares = attention_shares(subject.model, batch)
    ways = abs(first_head_paths(subject.model, subject.task, batch, seed=subject.seed))
    total = float(ways.sum(skipna=False))
    return {
        "previous": float(shares.previous.max()),
        "successors": float(shares.successors.max() - shares.chance),
        "keys": float(ways.sel(way="k")) / total if total > 0 else 0.0,
        **{f"through_{way}": float(ways.sel(way=way)) for way in ways.way.values},
        GATE: float(divergences(subject.model, subject.task, batch).closed),
    }


_CIRCUIT = case("an induction head", set_by_hand(THREE, induction_by_hand, TASK), n=1)
_COUNTING = case("a model that counts", set_by_hand(THREE, counting_by_hand, TASK), n=1)
_ASTRAY = case("two back", set_by_hand(THREE, astray_by_hand, TASK), n=1)
_UNTRAINED = case("untrained", untrained(UNITS))
_E5 = markov_claim(
    id="E5",
    statement="The two heads are a previous-token head and an induction head that reads it through its keys.",
    units=UNITS,
    gate=Gate(statement="has closed half of the gap to the bigram predictor", at_least=HALF),
    measure=measure,
    explanation=TEXTS.explain("E5", above=ABOVE),
    prompts="own",
    parts=(
        most("previous", "above", 0.5, _ATTENTION),
        most("successors", "above", ABOVE, _ATTENTION),
        most("keys", "above", 0.5, _SHARE),
    ),
    factors={"recipe": ("published",)},
    controls=controls(positive=(_CIRCUIT,), negative=(_COUNTING, _ASTRAY, _UNTRAINED)),
)
E5 = _E5.against(
    _E5.rival(
        "many-ways",
        "The first head works in other ways as much as through keys.",
        parts=(most("keys", "below", 0.5, _SHARE),),
        controls=controls(positive=(_COUNTING, _UNTRAINED), negative=(_CIRCUIT,)),
    ),
)
CLAIMS.add(E5.id, E5)
