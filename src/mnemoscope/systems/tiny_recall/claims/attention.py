"""T11 and T12: where the two heads look. One attends from x only to earlier y; the other binds locally."""

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import learned
from mnemoscope.claims import EFFECT, GATE, LEARNED, Explanation, Quantity, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import untrained
from mnemoscope.systems.tiny_recall.analyses.attention_by_role import (
    AFTER_SAME_X,
    SAME_X,
    attention_by_role,
    evenness,
    on_earlier_y,
    on_itself,
    on_y_before,
)
from mnemoscope.systems.tiny_recall.claim_parts import (
    ELIMINATION_HEAD,
    OTHER_TRAINING,
    SHOWN,
    UNTRAINED,
    as_v3,
    asked_of_more,
    of_v3,
    units,
)
from mnemoscope.systems.tiny_recall.constructed import elimination_only, shared_store, twin_elimination
from mnemoscope.systems.tiny_recall.constructed import local_binding as binding_model

SEQUENCES = ("all", "fresh", "repeat")
_UNIT = "share of attention"
_OTHER = 1


def scanning(subject: Subject, *, sequences: str = "all") -> dict[str, float]:
    """The targets of the elimination head's attention from x, in shares, over all sequences alike or one subgroup."""
    one_of("sequences", sequences, SEQUENCES)
    heads = attention_by_role(subject)
    share = on_earlier_y(heads, subgroup=sequences)
    return {
        GATE: learned(subject),
        EFFECT: float(share.mean()),
        "last": float(share[-1]),
        "evenness": float(evenness(heads, subgroup=sequences).mean()),
    }


def binding(subject: Subject) -> dict[str, float]:
    """The targets of the attention of the head that elimination needs second most, in shares."""
    heads = attention_by_role(subject)
    previous = on_y_before(heads, role=_OTHER)
    last = heads.isel(role=_OTHER, query=-1)
    on_repeats = last.share.sel(subgroup="repeat")
    rows = last.mean_pattern
    return {
        GATE: learned(subject),
        EFFECT: float(previous.min()),
        **{f"from x{slot}": float(share) for slot, share in enumerate(previous, 2)},
        "self": float(on_itself(heads, role=_OTHER).mean()),
        "same_x": float(on_repeats.sel(mechanism=SAME_X.name)),
        "after_same_x": float(on_repeats.sel(mechanism=AFTER_SAME_X.name)),
        "slot": float(rows.sel(subgroup="repeat").max()),
        "conditional": 0.5 * float(abs(rows.sel(subgroup="fresh") - rows.sel(subgroup="repeat")).sum()),
    }


_LOOKED_AT = f"{SHOWN} {ELIMINATION_HEAD} On all 7,200 sequences over the other half, each counting the same"
_LIMITS = (
    "It shows where the head looks. It does not show what the head contributes, nor that it is needed: that is asked "
    "of the same models by removal."
)
_SCANNING = Explanation(
    procedure=f"{_LOOKED_AT} (with sequences = fresh or repeat, on those), A[q, k] is the mean attention that this "
    "head gives from position q to k.",
    quantities={
        EFFECT: Quantity(
            words="the share of the attention from x that is on earlier y, mean over slots 2 to 5",
            formula="¼ Σ over s = 2…5 of Σ over t < s of A[x_s, y_t]",
        ),
        "last": Quantity(words="the same share from the last x", formula="Σ over t < 5 of A[x5, y_t]"),
        "evenness": Quantity(
            words="how far this attention is the same on each earlier y, mean over slots 2 to 5; 1 if it is all there "
            "and spread evenly",
            formula="¼ Σ over s = 2…5 of the mean of Σ over t < s of min(attention from x_s on y_t, 1 ÷ (s − 1))",
        ),
    },
    margins="“Only” is taken as more than nine tenths. A head that looks at all positions alike has .40 on earlier y "
    "in the mean over slots 2 to 5, and 4/9 from the last x.",
    limits=_LIMITS,
)
_BINDING = Explanation(
    procedure=f"{_LOOKED_AT}, A[q, k] is the mean attention that the other head gives from position q to k; "
    "the rivals look at repeats, or at repeats and fresh sequences apart.",
    quantities={
        EFFECT: Quantity(
            words="the attention from x to the y just before it, in the slot of 2 to 5 where it is smallest",
            formula="min over s = 2…5 of A[x_s, y_(s−1)]",
        ),
        "same_x": Quantity(
            words="the attention from the last x of a repeat to the earlier occurrence of that x",
            formula="mean over repeats of A[x5, x_t] with x_t = x5",
        ),
        "after_same_x": Quantity(
            words="the attention from the last x of a repeat to the y after the earlier occurrence",
            formula="mean over repeats of A[x5, y_t] with x_t = x5",
        ),
        "slot": Quantity(
            words="the attention from the last x of a repeat to the one position that gets most of it in the mean",
            formula="max over k of A[x5, k], A over repeats",
        ),
        "conditional": Quantity(
            words="how far the mean attention from the last x differs between fresh sequences and repeats (total "
            "variation distance)",
            formula="½ Σ over k of |A[x5, k] over fresh sequences − A[x5, k] over repeats|",
        ),
        **{
            f"from x{slot}": Quantity(words="the attention to the y just before", formula=f"A[x{slot}, y{slot - 1}]")
            for slot in range(2, 6)
        },
        "self": Quantity(
            words="the attention of y to itself; no position of y is scored, so that training never asked for it",
            formula="¼ Σ over s = 1…4 of A[y_s, y_s]",
        ),
    },
    margins="Above one half a place has more than all others together. At slot 2 the y just before is the only earlier "
    "one, so that slots 3 to 5 tell this head from one that looks at all earlier y. For “conditional” 0 is the same "
    "attention in both cases and 1 no overlap; .25 is a quarter of the attention that moves elsewhere.",
    limits=f"{_LIMITS} The heads have their places by what elimination needs; what recall needs is not looked at.",
)
_elimination_only = as_v3("elimination only", elimination_only)
_T11 = of_v3(
    id="T11",
    statement="One head, the elimination head, attends from x only to earlier y.",
    source="tiny-recall, article",
    quantifier="most",
    margin=0.9,
    unit=_UNIT,
    controls=controls(negative=(UNTRAINED,), positive=(_elimination_only,)),
    measure=scanning,
    explanation=_SCANNING,
    factors={"sequences": ("fresh", "repeat"), **OTHER_TRAINING},
    prompts="enumerated",
)
T11 = _T11.against(
    _T11.rival(
        "last",
        "That head attends only to earlier y from the last x.",
        parts=(most("last", "above", 0.9, _UNIT),),
        controls=_T11.controls,
    )
)
HALF = 0.5
"""Share of attention above which a place has more than all others together."""
CHANGED = 0.25
"""Total variation distance: half of the attention goes elsewhere in one of two cases."""
OTHER_V3 = units("v3")
_bound, _by_match = as_v3("local binding", binding_model), as_v3("a head that finds the same x", shared_store)
_scans = as_v3("both heads look at all earlier y", twin_elimination, n=1)
_fresh_weights = case("untrained", untrained(OTHER_V3))
_at_margin = table(
    "at the margins",
    {"v3": {GATE: 1.0, **dict.fromkeys((EFFECT, "same_x", "after_same_x", "slot"), HALF), "conditional": CHANGED}},
)
_NOTHING = (_fresh_weights, _at_margin)
_PLACE = controls(positive=(_bound,), negative=(*_NOTHING, _by_match))
_MATCH = controls(positive=(_by_match,), negative=(*_NOTHING, _bound))
_T12 = asked_of_more(
    id="T12",
    statement="The other head binds locally: from x of every slot it attends to the y just before.",
    source="tiny-recall, article",
    quantifier="most",
    margin=HALF,
    unit=_UNIT,
    gate=LEARNED,
    units=OTHER_V3,
    controls=_PLACE + controls(negative=(_scans,)),
    measure=binding,
    explanation=_BINDING,
    factors={"recipe": ("published",)},
    prompts="enumerated",
)
T12 = _T12.against(
    *(
        _T12.rival(name.replace("_", "-"), statement, parts=(most(name, "above", margin, _UNIT),), controls=controls)
        for name, statement, margin, controls in (
            ("same_x", "It attends from a repeated x to its earlier occurrence.", HALF, _MATCH),
            (
                "after_same_x",
                "It attends from a repeated x to the y after it.",
                HALF,
                controls(negative=(*_NOTHING, _by_match, _bound)),
            ),
            ("slot", "It attends from a repeated x to one fixed position.", HALF, _PLACE),
            ("conditional", "What it attends to depends on a repeat.", CHANGED, _MATCH),
        )
    )
)
for _claim in (T11, T12):
    CLAIMS.add(_claim.id, _claim)
