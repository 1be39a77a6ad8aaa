"""B4 and B13: do trained matrices become the memories that theory predicts, and do they stay so?

For W_K^1 keys may compete for a query, as under the softmax, or queries for a key: that is a factor. The quarters of
B13 are fixed and do not look for the best checkpoint, so both effects can come out on either side of 0.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mnemoscope import CLAIMS, Configuration, Subject
from mnemoscope.claims import GATE, Case, case, controls, most, table
from mnemoscope.models import ControlMaker, set_by_hand, untrained
from mnemoscope.models.constructed import Course, prescribe_course
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import LEARNED, fixed_triggers, learned
from mnemoscope.systems.in_context_bigrams.analyses.memories import (
    LEAST,
    Over,
    copied_token,
    previous_token,
    remapped_copy,
)
from mnemoscope.systems.in_context_bigrams.analyses.trajectory import tracked
from mnemoscope.systems.in_context_bigrams.claim_parts import MEMORY_SEEDS, SGD, TEXTS, birth
from mnemoscope.systems.in_context_bigrams.constructed import induction_memories
from mnemoscope.systems.in_context_bigrams.presets import HELD_SEEDS
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams

TASK = InContextBigrams(length=128, triggers="fixed")
ALONE = {"memories": Configuration(preset="memories", recipe=SGD)}
WITH_W_F = {"memories-all": Configuration(preset="memories-all", recipe=SGD)}
MEMORIES = ("output", "match", "previous_early")
RECALLED = 0.9
DEVIATES = 0.05
"""Of recall, and in nats."""
N_DRAWS = 2
"""Permutations: their interval is not read."""


def measure(subject: Subject, *, over: Over = "keys") -> dict[str, float]:
    """Recall of the three memories of a model of two layers of one head, in shares.

    In W_K^1 keys compete for a query, or queries for a key.
    """
    model, n_pos = subject.model, subject.task.n_ctx
    found = {
        "output": copied_token(model, n_draws=N_DRAWS),
        "match": remapped_copy(model, tokens=fixed_triggers(subject.task) or None, n_draws=N_DRAWS),
        "previous_early": previous_token(model, n_pos=max(LEAST, n_pos // 4), over=over, n_draws=N_DRAWS),
        "previous_all": previous_token(model, n_pos=n_pos, over=over, n_draws=N_DRAWS),
    }
    return {GATE: learned(subject), **{name: float(result.recall) for name, result in found.items()}}


def deviations(subject: Subject) -> dict[str, float]:
    """The distances of W_O^2 and W_F from their ideals in the last quarter of training, less those in its second.

    Beside it stand their values there and the best of all.
    """
    output, divergence = (tracked(subject.trajectory, name) for name in ("recall_copied_token", "feed_forward_kl"))
    last = int(output.step[-1])
    second, fourth = (slice(last * k // 4 + 1, last * (k + 1) // 4) for k in (1, 3))
    means = {
        f"{name} in the {quarter} quarter": float(values.sel(step=steps).mean())
        for name, values in (("output", output), ("ff", divergence))
        for quarter, steps in (("second", second), ("last", fourth))
    }
    return {
        "output_deviates": means["output in the second quarter"] - means["output in the last quarter"],
        "ff_deviates": means["ff in the last quarter"] - means["ff in the second quarter"],
        **means,
        "output at its best": float(output.max()),
        "ff at its best": float(divergence.min()),
    }


def holding(*memories: str) -> ControlMaker:
    """A control: sums of outer products in the place of these matrices, the others as random as before training."""
    make = partial(induction_memories, TASK.d_vocab, TASK.n_ctx, tokens=TASK.fixed_triggers, memories=tuple(memories))
    return set_by_hand("memories", make, TASK)


def drifting(
    output: float, ff: float, *, units: Mapping[str, Configuration] = WITH_W_F
) -> Callable[[int], Mapping[str, Subject]]:
    """A control: W_O^2 is perfect in the second quarter of training, W_F .2 nats from the bigrams; in the last one they
    are so much further off.
    """
    return partial(_drifting, dict(units), output, ff)


def _drifting(units: Mapping[str, Configuration], output: float, ff: float, case: int) -> Mapping[str, Subject]:
    """As far along in any recipe."""
    steps = units["memories-all"].spec(0).recipe.n_steps
    learned, begins, ends = steps // 5, steps // 2, 3 * steps // 4
    courses: Mapping[str, Course] = {
        "recall_copied_token": ((0, 0.0), (learned, 1.0), (begins, 1.0), (ends, 1 - output)),
        "feed_forward_kl": ((0, 2.0), (learned, 0.2), (begins, 0.2), (ends, 0.2 + ff)),
    }
    return prescribe_course(units, {"memories-all": courses})(case)


def _table(name: str, *, recall: float, previous_all: float) -> Case:
    """A planted outcome: all recalls alike but that over all positions."""
    alike = dict.fromkeys(MEMORIES, recall)
    return table(name, {"memories": {**alike, "previous_all": previous_all, GATE: 1.0}})


def _drift(name: str, *, output: float, ff: float) -> Case:
    return case(name, drifting(output, ff), n=1)


_all_three = case("the predicted sums", holding("previous token", "remapped copy", "copied token"))
_no_match = case("no remapped copy", holding("previous token", "copied token"))
_no_previous = case("no previous token", holding("remapped copy", "copied token"))
_untrained = case("untrained", untrained(ALONE))
_early_only = _table("only early positions", recall=1.0, previous_all=0.5)
_at_margin = _table("at the margin", recall=RECALLED, previous_all=RECALLED)

_compete = _drift("both deviate", output=0.2, ff=0.5)
_output_only = _drift("only the output deviates", output=0.2, ff=0.0)
_ff_only = _drift("only W_F deviates", output=0.0, ff=0.5)
_neither = _drift("neither deviates", output=0.0, ff=0.0)
_by_margin = _drift("by the margin", output=DEVIATES, ff=DEVIATES)
_closer = _drift("W_F comes closer", output=0.2, ff=-0.15)
_output_deviates = most("output_deviates", "above", DEVIATES, "recall")

_B4 = birth(
    id="B4",
    statement="The trained matrices become the predicted memories.",
    units=ALONE,
    measure=measure,
    explanation=TEXTS.explain("B4"),
    gate=LEARNED,
    source="Bietti et al. 2023, Birth of a Transformer",
    first_seed=MEMORY_SEEDS,
    last_seed=HELD_SEEDS - 1,
    parts=tuple(most(name, "above", RECALLED, "recall") for name in MEMORIES),
    factors={"over": ("queries",), "recipe": ("quick",)},
    controls=controls(positive=(_all_three, _early_only), negative=(_no_match, _no_previous, _at_margin, _untrained)),
)
B4 = _B4.against(
    _B4.rival(
        "late-too",
        "W_K^1 stores all positions, late ones too.",
        source=_B4.source,
        parts=(most("previous_all", "above", RECALLED, "recall"),),
        controls=controls(positive=(_all_three,), negative=(_early_only, _no_previous, _untrained)),
    ),
)
_B13 = birth(
    id="B13",
    statement="W_O^2 and W_F eventually compete and deviate from the ideal memories.",
    units=WITH_W_F,
    measure=deviations,
    explanation=TEXTS.explain("B13", deviates=DEVIATES),
    source="Bietti et al. 2023, Birth of a Transformer, probes throughout training",
    develops=False,
    parts=(_output_deviates, most("ff_deviates", "above", DEVIATES, "nats")),
    factors={"recipe": ("quick",)},
    controls=controls(positive=(_compete,), negative=(_output_only, _ff_only, _neither, _closer, _by_margin)),
)
B13 = _B13.against(
    _B13.rival(
        "output-only",
        "W_O^2 alone deviates; W_F stays as near the global bigrams as it was.",
        source=_B13.source,
        parts=(_output_deviates, most("ff_deviates", "below", DEVIATES, "nats")),
        controls=controls(positive=(_output_only,), negative=(_compete, _neither)),
    ),
)
for _claim in (B4, B13):
    CLAIMS.add(_claim.id, _claim)
