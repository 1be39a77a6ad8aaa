"""R5, R6, R8 and R9: the circuit of attention that models with three steps learn.

What the effects are is in `circuit_effects`, of R5-alone and R6 in `joint_circuits`; paths and places are those of
`Retrieval`. R5 counts the heads of a circuit, R5-alone those that are missed when they alone are taken out.
"""

from dataclasses import replace
from functools import partial

from mnemoscope import CLAIMS, HookedModel
from mnemoscope.claims import GATE, Case, Explanation, case, controls, most, table
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.retrieval.circuit_effects import WAYS, ChainPath, of_paths, take_apart
from mnemoscope.systems.retrieval.claim_parts import (
    CHAINS,
    FIRST_OF_THREE,
    FIRST_UNSEEN,
    FOLLOWS,
    LAST_OF_THREE,
    LAST_UNSEEN,
    TASK,
    TEXTS,
    WHOLE_CHAIN,
    retrieval,
)
from mnemoscope.systems.retrieval.constructed import chain_follower
from mnemoscope.systems.retrieval.joint_circuits import BUDGET, MATTERS, matter_alone, take_apart_together

FEW = 1 / 3
"""Share of the heads; four of twelve in the source."""
KEPT, COSTS, SPARED = 0.05, 0.12, 0.1
_ERROR, _YES = "squared error", "1: yes, 0: no"


def follower() -> HookedModel:
    """The hand-set chain follower, with three idle heads in every layer."""
    return chain_follower(TASK.n_steps, n_heads=4)


def _circuit(name: str, *paths: tuple[int, int, int, int, float], kept: float = 0.01, **effects: float) -> Case:
    """A planted outcome: paths of a circuit of 20 heads, and effects in the place of theirs."""
    found = of_paths([ChainPath(*path) for path in paths], n_heads=20, kept=kept)
    return table(name, {CHAINS: {**found, GATE: 0.01, **effects}})


_PAIRS = tuple((0, 0, 2 * step, 2 * step - 1, 0.0) for step in (1, 2, 3))
_HOPS = tuple((step, 0, 0, 2 * step, 0.3) for step in (1, 2, 3))
_FOLLOWS = case("the built circuit", set_by_hand(CHAINS, follower, TASK), n=1)
_UNTRAINED = case("untrained", untrained(WHOLE_CHAIN), n=1)
_EVERY_HEAD = _circuit("every head", *((layer, head, 0, 2, 0.3) for layer in range(5) for head in range(4)))
_QUERY_FIRST = _circuit("the query first", *_HOPS)
_LOST = _circuit("the error rises by the margin", *_PAIRS, *_HOPS, kept=KEPT)
_IDLE_PATH = _circuit("a path that costs little", *_PAIRS, *_HOPS[:2], (3, 0, 0, 6, COSTS))
_FETCHED_LATE = _circuit("pairs in two layers", *_PAIRS[:1], *_HOPS, (2, 1, 4, 3, 0.02))
_EARLY_QUERY = _circuit("the first layer costs", *((step - 1, 0, 0, 2 * step, 0.3) for step in (1, 2, 3)))
_BACK = _circuit("pairs of step 3 reach back", *_PAIRS, *_HOPS, (1, 1, 5, 4, 0.3))
_ONE_HOP_LESS = _circuit("the query skips a step", *_PAIRS, *_HOPS[1:])
_NO_WAY = _circuit("no circuit")
_THREE_HEADS = _circuit("three heads", *_PAIRS, *_HOPS[1:])
_MANY_ALONE = table("half of the heads matter alone", {CHAINS: {"share": 0.5, "heads": 24.0, GATE: 0.01}})


def _explained(id: str, *first: str, **margins: float) -> Explanation:
    """The explanation of a claim about circuits: its own quantities come first."""
    text = TEXTS.explain(id, **margins)
    return replace(text, quantities={name: text.quantities[name] for name in (*first, *text.quantities)})


circuits = partial(
    retrieval,
    units=WHOLE_CHAIN,
    first_seed=FIRST_OF_THREE,
    last_seed=LAST_OF_THREE,
    gate=FOLLOWS,
    measure=take_apart,
    factors={"tolerance": (0.02, 0.1)},
)
_R5 = circuits(
    id="R5",
    statement="Few heads are in the circuit, and the first that is connects the two symbols of a pair.",
    explanation=_explained("R5", "share", "pairs_first", "query_first"),
    parts=(
        most("share", "below", FEW, "share of heads"),
        most("pairs_first", "above", 0.5, "share of paths"),
    ),
    controls=controls(positive=(_FOLLOWS, _BACK), negative=(_EVERY_HEAD, _QUERY_FIRST, _UNTRAINED)),
)
R5 = _R5.against(
    _R5.rival(
        "query",
        "The first head that matters is one of the query's.",
        parts=(most("query_first", "above", 0.5, "share of paths"),),
        controls=controls(positive=(_QUERY_FIRST,), negative=(_FOLLOWS, _UNTRAINED)),
    ),
)
unseen = partial(retrieval, units=WHOLE_CHAIN, first_seed=FIRST_UNSEEN, last_seed=LAST_UNSEEN, gate=FOLLOWS)
_R5_ALONE = unseen(
    id="R5-alone",
    statement="Few heads matter alone: the error rises without the output of one head for fewer than a third of them.",
    measure=matter_alone,
    explanation=TEXTS.explain("R5-alone", matters=MATTERS),
    factors={"matters": (0.01, 0.1)},
    parts=(most("share", "below", FEW, "share of heads"), most("heads", "above", 0.5, "heads")),
    controls=controls(positive=(_FOLLOWS,), negative=(_MANY_ALONE, _UNTRAINED)),
)
R5_ALONE = _R5_ALONE.against(
    _R5_ALONE.rival(
        "many",
        "A third of the heads or more matter alone.",
        parts=(most("share", "above", FEW, "share of heads"),),
        controls=controls(positive=(_MANY_ALONE,), negative=(_FOLLOWS, _UNTRAINED)),
    ),
)
_R6 = unseen(
    id="R6",
    statement=(
        "A circuit exists that replaces all attention by single places, all keys alike or the query itself with hardly "
        "more error, and none of whose paths above the first layer can be spared."
    ),
    version=2,
    measure=take_apart_together,
    explanation=TEXTS.explain("R6", kept=KEPT, costs=COSTS, budget=BUDGET),
    factors={"others": ("mean",)},
    parts=(most("kept", "below", KEPT, _ERROR), most("removed", "above", COSTS, _ERROR)),
    controls=controls(positive=(_FOLLOWS, _BACK), negative=(_LOST, _IDLE_PATH, _FETCHED_LATE, _UNTRAINED)),
)
R6 = _R6.against(
    _R6.rival(
        "query",
        "What costs that much are the paths of the query; those between pairs only let themselves be found.",
        parts=(most("at_query", "above", COSTS, _ERROR), most("elsewhere", "below", COSTS, _ERROR)),
        controls=controls(positive=(_FOLLOWS, _FETCHED_LATE), negative=(_IDLE_PATH, _BACK, _UNTRAINED)),
    ),
)
R6_FIRST = circuits(
    id="R6-first",
    statement="Without the first relevant layer, later attention in place, the error stays small.",
    explanation=_explained("R6-first", "first", spared=SPARED),
    parts=(most("first", "below", SPARED, _ERROR),),
    controls=controls(positive=(_FOLLOWS, _FETCHED_LATE), negative=(_EARLY_QUERY,)),
)
_R8 = circuits(
    id="R8",
    statement="Beyond the first head, seeds find other circuits than the straight one, a hop of the query a step.",
    explanation=_explained("R8", "not_straight", *WAYS),
    parts=(most("not_straight", "above", 0.5, _YES),),
    controls=controls(positive=(_BACK, _ONE_HOP_LESS), negative=(_FOLLOWS, _NO_WAY)),
)
R8 = _R8.against(
    _R8.rival(
        "same",
        "Most seeds find one and the same way.",
        parts=tuple(most(way, "above", 0.5, _YES) for way in WAYS),
        joined="any",
        controls=controls(positive=(_FOLLOWS, _BACK), negative=(_NO_WAY,)),
    ),
)
_R9 = circuits(
    id="R9",
    statement="They use more heads than the three that could do.",
    explanation=_explained("R9", "spare", "by_layout"),
    parts=(most("spare", "above", 0.5, "heads"),),
    controls=controls(positive=(_FOLLOWS, _BACK), negative=(_THREE_HEADS, _UNTRAINED)),
)
R9 = _R9.against(
    _R9.rival(
        "layout",
        "The fourth head is needed by the way the data are laid out.",
        parts=(most("by_layout", "above", 0.5, "heads"),),
        controls=controls(
            positive=(_circuit("a layout that asks for four", *_PAIRS, *_HOPS, by_layout=1.0),),
            negative=(_FOLLOWS, _THREE_HEADS),
        ),
    ),
)
for _claim in (R5, R5_ALONE, R6, R6_FIRST, R8, R9):
    CLAIMS.add(_claim.id, _claim)
