"""T11 and T12: where the two heads look. One attends from x only to earlier y; the other binds locally."""

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import lowest_skill_accuracy
from mnemoscope.claims import EFFECT, GATE, LEARNED, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import untrained
from mnemoscope.systems.tiny_recall.analyses.attention import (
    AFTER_SAME_X,
    SAME_X,
    attention_by_role,
    evenness,
    on_earlier_y,
    on_itself,
    on_y_before,
)
from mnemoscope.systems.tiny_recall.claim_parts import (
    OTHER_TRAINING,
    TEXTS,
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
        GATE: lowest_skill_accuracy(subject),
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
        GATE: lowest_skill_accuracy(subject),
        EFFECT: float(previous.min()),
        **{f"from x{slot}": float(share) for slot, share in enumerate(previous, 2)},
        "self": float(on_itself(heads, role=_OTHER).mean()),
        "same_x": float(on_repeats.sel(mechanism=SAME_X.name)),
        "after_same_x": float(on_repeats.sel(mechanism=AFTER_SAME_X.name)),
        "slot": float(rows.sel(subgroup="repeat").max()),
        "conditional": 0.5 * float(abs(rows.sel(subgroup="fresh") - rows.sel(subgroup="repeat")).sum()),
    }


_LIMITS = (
    "It shows where the head looks. It does not show what the head contributes, nor that it is needed: that is asked "
    "of the same models by removal."
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
    explanation=TEXTS.explain("T11"),
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
    explanation=TEXTS.explain("T12", changed=CHANGED),
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
