"""B3: the first layer is a previous-token head, the second an induction head.

"Layer 1 always attends to the previous token; layer 2 is an induction head, and with fixed triggers attends mainly to
what follows those", is refuted if in most seeds one of these parts fails. Mean attention A of a head, and in-context
accuracy acc, over 64 fresh sequences of the split `test`; layers are numbered from 1 as in the source::

    previous        A from every token to the one before it, best head of layer 1, above .5
    induction       A from triggers that occurred before to the tokens after all their earlier occurrences, best head
                    of layer 2, above .5
    previous_cost   acc lost when layer 1 attends evenly to all keys, above .25
    induction_cost  acc lost when layer 2 does, above .25
    sufficient      acc lost when layer 1 attends to the previous token exactly, below .1
    fixed_after     with fixed triggers: A from all tokens that a trigger came before to the tokens after any trigger,
                    best head of layer 2, above .5

The sentence is about both models, of random and of fixed triggers: each of the first five parts is its worse value
over the two, which stand beside it by name; the gate looks at the lower accuracy of the two. Rival: with fixed
triggers, tokens that are no trigger give the tokens after triggers less than half; it is a trigger that looks there.

The three costs are causal: patterns are replaced, and accuracy is measured again. `sufficient` asks whether all that
layer 1 does for the outputs is done by attention to the previous token; below 0, exact attention does better.

They show where heads look, and that the outputs depend on it. They do not show what the heads copy, nor how layer 2
finds its keys. Frequent triggers are followed by many tokens, so even attention gives `fixed_after` about the share of
these in the context, some .3.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, HookedModel, Subject
from mnemoscope.judging import GATE, Measured
from mnemoscope.models import planted, untrained
from mnemoscope.models.constructed import induction
from mnemoscope.systems.in_context_bigrams.analyses.causal import pattern_costs
from mnemoscope.systems.in_context_bigrams.analyses.heads import EXACT_PREVIOUS, UNIFORM, head_attention
from mnemoscope.systems.in_context_bigrams.analyses.prompts import LEARNED, learned, prompts
from mnemoscope.systems.in_context_bigrams.constructed import induction_memories, trigger_induction
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams

RANDOM, FIXED = "birth-2-layers", "birth-fixed"
UNITS = {name: Configuration(preset=name) for name in (RANDOM, FIXED)}
TASKS = {RANDOM: InContextBigrams(length=64), FIXED: InContextBigrams(length=64, triggers="fixed")}
"""Of planted models: shorter than the units', since the circuit has a dimension a position."""
FIRST, SECOND = "L0", "L1"
HALF, NEEDED, SPARED = 0.5, 0.25, 0.1
IN_BOTH = {"previous": min, "induction": min, "previous_cost": min, "induction_cost": min, "sufficient": max}
"""Which of two values is the worse one."""


def measure(subject: Subject) -> dict[str, float]:
    """Attention of the best heads and costs of replaced patterns, in shares.

    Args:
        subject: A model of two layers.

    Raises:
        InputError: The task is another one, or the model is too small for it.
    """
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


def any_token() -> HookedModel:
    """The induction circuit for any token."""
    return induction(TASKS[RANDOM].d_vocab, TASKS[RANDOM].n_ctx)


def fixed_tokens() -> HookedModel:
    """The induction circuit for the fixed triggers."""
    task = TASKS[FIXED]
    return trigger_induction(task.d_vocab, task.n_ctx, triggers=task.fixed_triggers)


def no_match() -> HookedModel:
    """A previous-token head and a copying one that does not know where to look."""
    task = TASKS[RANDOM]
    return induction_memories(task.d_vocab, task.n_ctx, memories=("previous token", "copied token"))


def models(case: int, *, random: Callable[[], HookedModel], fixed: Callable[[], HookedModel]) -> dict[str, Subject]:
    """Planted models for random and for fixed triggers."""
    return planted(RANDOM, random, TASKS[RANDOM])(case) | planted(FIXED, fixed, TASKS[FIXED])(case)


def table(case: int, **changes: float) -> dict[str, dict[str, float]]:
    """A planted outcome, alike for both: the claim as it is meant, with some values changed."""
    meant = {"previous": 1.0, "induction": 1.0, "previous_cost": 0.6, "induction_cost": 0.6, "sufficient": 0.0}
    return {name: {**meant, "after": 1.0, "after_elsewhere": 1.0, GATE: 1.0, **changes} for name in UNITS}


_share = partial(Criterion, quantifier="most", unit="share of attention")
_lost = partial(Criterion, quantifier="most", unit="accuracy")
_as_claimed = partial(
    Control, name="induction circuits", plant=partial(models, random=any_token, fixed=fixed_tokens), n=1
)
_narrow = partial(
    Control,
    name="induction of any token, with fixed triggers too",
    plant=partial(models, random=any_token, fixed=any_token),
    n=1,
)
_margins = {
    "previous": HALF, "induction": HALF, "previous_cost": NEEDED, "induction_cost": NEEDED, "sufficient": SPARED,
    "after": HALF, "after_elsewhere": HALF,
}  # fmt: skip
_planted = partial(Control, kind="negative", n=1)

_B3 = Claim(
    id="B3",
    statement="Layer 1 is a previous-token head, layer 2 an induction head that looks after the triggers.",
    source="Bietti et al. 2023, Birth of a Transformer, attention maps",
    system="birth",
    units=UNITS,
    measure=measure,
    compare=compare,
    gate=LEARNED,
    parts=(
        _share(name="previous", margin=HALF),
        _share(name="induction", margin=HALF),
        _lost(name="previous_cost", margin=NEEDED),
        _lost(name="induction_cost", margin=NEEDED),
        _lost(name="sufficient", margin=SPARED, direction="below"),
        _share(name="fixed_after", margin=HALF),
    ),
    controls=(
        _as_claimed(kind="positive"),
        _planted(name="no match", plant=partial(models, random=no_match, fixed=no_match)),
        _planted(name="patterns that nothing depends on", plant=partial(table, previous_cost=0.0, induction_cost=0.0)),
        _planted(name="more than the previous token is needed", plant=partial(table, sufficient=0.3)),
        _planted(name="at the margins", plant=partial(table, **_margins)),
        Control(name="untrained", kind="negative", plant=untrained(UNITS)),
    ),
)
B3 = _B3.against(
    _B3.rival(
        "fixed-narrow",
        "With fixed triggers, tokens that are no trigger give what follows triggers less than half.",
        source="rival of B3: the head looks there from triggers only",
        parts=(_share(name="fixed_elsewhere", margin=HALF, direction="below"),),
        controls=(
            _narrow(kind="positive"),
            _as_claimed(kind="negative"),
            _planted(name="at the margins", plant=partial(table, **_margins)),
        ),
    ),
)
CLAIMS.add(B3.id, B3)
