"""B3: the first layer is a previous-token head, the second an induction head.

The sentence is about both models, of random and of fixed triggers: each of the first five parts is its worse value
over the two, which stand beside it by name.
"""

from collections.abc import Callable, Mapping

from mnemoscope import CLAIMS, Configuration, HookedModel, Subject
from mnemoscope.claims import GATE, Measured, case, controls, most, table
from mnemoscope.models import ControlMaker, combined, set_by_hand, untrained
from mnemoscope.systems.in_context_bigrams.analyses.causal import pattern_costs
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import LEARNED, learned, prompts
from mnemoscope.systems.in_context_bigrams.analyses.heads import EXACT_PREVIOUS, UNIFORM, head_attention
from mnemoscope.systems.in_context_bigrams.claim_parts import (
    FIXED_TRIGGERS,
    RANDOM_TRIGGERS,
    TEXTS,
    any_token,
    birth,
)
from mnemoscope.systems.in_context_bigrams.constructed import induction_memories, trigger_induction

RANDOM, FIXED = "birth-2-layers", "birth-fixed"
UNITS = {name: Configuration(preset=name) for name in (RANDOM, FIXED)}
FIRST, SECOND = "L0", "L1"
HALF, NEEDED, SPARED = 0.5, 0.25, 0.1
IN_BOTH = {"previous": min, "induction": min, "previous_cost": min, "induction_cost": min, "sufficient": max}
"""Which of two values is the worse one."""
_SHARE = "share of attention"


def measure(subject: Subject) -> dict[str, float]:
    """Attention of the best heads of a model of two layers, and costs of replaced patterns, in shares."""
    batch = prompts(subject.task, subject.seed)
    score = head_attention(subject.model, batch).score.max("head")
    patterns = {"even": UNIFORM, "previous": EXACT_PREVIOUS}
    costs = pattern_costs(subject.model, batch, mechanisms=patterns).accuracy_cost.sel(position_class="in_context")
    return {
        GATE: learned(subject),
        "previous": float(score.sel(measure="previous_token", layer=0)),
        "induction": float(score.sel(measure="induction", layer=1)),
        "previous_cost": float(costs.sel(component=FIRST, pattern="even")),
        "induction_cost": float(costs.sel(component=SECOND, pattern="even")),
        "sufficient": float(costs.sel(component=FIRST, pattern="previous")),
        "after": float(score.sel(measure="after_triggers", layer=1)),
        "after_elsewhere": float(score.sel(measure="after_triggers_elsewhere", layer=1)),
    }


def compare(measured: Mapping[str, Measured]) -> Measured:
    """The worse of both models, what is about fixed triggers, and beside them the values of each."""
    worse = {name: which(float(found[name]) for found in measured.values()) for name, which in IN_BOTH.items()}
    fixed = {"fixed_after": measured[FIXED]["after"], "fixed_elsewhere": measured[FIXED]["after_elsewhere"]}
    gate = {GATE: min(float(found[GATE]) for found in measured.values())}
    return worse | fixed | gate | {f"{name} {unit}": measured[unit][name] for unit in measured for name in IN_BOTH}


def fixed_tokens() -> HookedModel:
    """The induction circuit for the fixed triggers."""
    task = FIXED_TRIGGERS
    return trigger_induction(task.d_vocab, task.n_ctx, triggers=task.fixed_triggers)


def no_match() -> HookedModel:
    """A previous-token head and a copying one that does not know where to look."""
    task = RANDOM_TRIGGERS
    return induction_memories(task.d_vocab, task.n_ctx, memories=("previous token", "copied token"))


def models(random: Callable[[], HookedModel], fixed: Callable[[], HookedModel]) -> ControlMaker:
    """Planted models for random and for fixed triggers."""
    return combined(set_by_hand(RANDOM, random, RANDOM_TRIGGERS), set_by_hand(FIXED, fixed, FIXED_TRIGGERS))


def outcome(**changes: float) -> dict[str, dict[str, float]]:
    """A planted outcome, alike for both: the claim as it is meant, with some values changed."""
    meant = {"previous": 1.0, "induction": 1.0, "previous_cost": 0.6, "induction_cost": 0.6, "sufficient": 0.0}
    return {name: {**meant, "after": 1.0, "after_elsewhere": 1.0, GATE: 1.0, **changes} for name in UNITS}


_as_claimed = case("induction circuits", models(any_token, fixed_tokens), n=1)
_narrow = case("induction of any token, with fixed triggers too", models(any_token, any_token), n=1)
_margins = {
    "previous": HALF, "induction": HALF, "previous_cost": NEEDED, "induction_cost": NEEDED, "sufficient": SPARED,
    "after": HALF, "after_elsewhere": HALF,
}  # fmt: skip
_at_margins = table("at the margins", outcome(**_margins))

_B3 = birth(
    id="B3",
    statement="Layer 1 is a previous-token head, layer 2 an induction head that looks after the triggers.",
    source="Bietti et al. 2023, Birth of a Transformer, attention maps",
    units=UNITS,
    measure=measure,
    compare=compare,
    explanation=TEXTS.explain("B3"),
    gate=LEARNED,
    parts=(
        most("previous", "above", HALF, _SHARE),
        most("induction", "above", HALF, _SHARE),
        most("previous_cost", "above", NEEDED, "accuracy"),
        most("induction_cost", "above", NEEDED, "accuracy"),
        most("sufficient", "below", SPARED, "accuracy"),
        most("fixed_after", "above", HALF, _SHARE),
    ),
    factors={"recipe": ("long",)},
    controls=controls(
        positive=(_as_claimed,),
        negative=(
            case("no match", models(no_match, no_match), n=1),
            table("patterns that nothing depends on", outcome(previous_cost=0.0, induction_cost=0.0)),
            table("more than the previous token is needed", outcome(sufficient=0.3)),
            _at_margins,
            case("untrained", untrained(UNITS)),
        ),
    ),
)
B3 = _B3.against(
    _B3.rival(
        "fixed-narrow",
        "With fixed triggers, tokens that are no trigger give what follows triggers less than half.",
        source="rival of B3: the head looks there from triggers only",
        parts=(most("fixed_elsewhere", "below", HALF, _SHARE),),
        controls=controls(positive=(_narrow,), negative=(_as_claimed, _at_margins)),
    ),
)
CLAIMS.add(B3.id, B3)
