"""B4 and B13: do trained matrices become the memories that theory predicts, and do they stay so?

B4, "the trained matrices become the predicted memories", is refuted if in most seeds one of the three does not retrieve
nine tenths of its associations. Rival: W_K^1 stores late positions too.

B13, "W_O^2 and W_F eventually compete and deviate from the ideal memories", is refuted if in most seeds one of the two
ends as near its ideal as it ever was. Rival: W_O^2 alone deviates, W_F stays.

The memory recall R(W) of a matrix is the share of associations i whose right output has the largest product with what
the matrix makes of input i (`analyses.memory_recall`):

    output          W_O^2: every token -> itself, among all tokens
    match           W_K^2: every trigger -> its remapped copy, among those of the triggers (they are fixed)
    previous_early  W_K^1: position -> the one before it, among the first quarter of positions;  previous_all: among all

For W_K^1 keys may compete for a query, as under the softmax, or queries for a key: that is a factor.

B13 is read from the trajectory, where W_F alone is compared with the global bigrams (`feed_forward_bigrams`):

    output_deviates   largest R(W_O^2) over the checkpoints - the last
    ff_deviates       last KL divergence of W_F from the global bigrams - the smallest, in nats

"Deviate" is read as: end further from the ideal than at some checkpoint before. Both effects are 0 or more by
construction, and noise alone makes them positive; hence the margins. That one gains what the other loses is not
required.

They show what can be read off the matrices. They do not show that the model computes with these memories: a matrix may
retrieve everything long before it is large enough to matter, and R(W) says nothing of sizes. Nor does a deviation
show competition: W_F may move because predictions ask for it.
"""

from collections.abc import Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, Subject
from mnemoscope.analyses import LEAST, Over, copied_token, previous_token, remapped_copy
from mnemoscope.judging import GATE, Measured
from mnemoscope.models import Plant, planted, untrained
from mnemoscope.models.constructed import Course, following
from mnemoscope.systems.in_context_bigrams.analyses.order import tracked
from mnemoscope.systems.in_context_bigrams.analyses.prompts import LEARNED, fixed_triggers, learned
from mnemoscope.systems.in_context_bigrams.constructed import induction_memories
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams

TASK = InContextBigrams(length=128, triggers="fixed")
ALONE = {"memories": Configuration(preset="memories")}
WITH_W_F = {"memories-all": Configuration(preset="memories-all")}
RECALLED = 0.9
DEVIATES = 0.05
"""Of recall, and in nats."""
N_DRAWS = 2
"""Permutations: their interval is not read."""


def measure(subject: Subject, *, over: Over = "keys") -> dict[str, float]:
    """Recall of the three memories, in shares.

    Args:
        subject: A model of two layers of one head.
        over: Whether keys compete for a query, or queries for a key, in W_K^1.

    Raises:
        InputError: The model is another one.
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
    """How far W_O^2 and W_F end from the best that they were, beside where they end.

    Raises:
        InputError: There is no trajectory, or a measure is missing there.
    """
    output, divergence = (tracked(subject.trajectory, name) for name in ("recall_copied_token", "feed_forward_kl"))
    return {
        "output_deviates": float(output.max() - output[-1]),
        "ff_deviates": float(divergence[-1] - divergence.min()),
        "output": float(output[-1]),
        "ff": float(divergence[-1]),
    }


def holding(*memories: str) -> Plant:
    """A control: sums of outer products in the place of these matrices, the others as random as before training."""
    make = partial(induction_memories, TASK.d_vocab, TASK.n_ctx, tokens=TASK.fixed_triggers, memories=tuple(memories))
    return planted("memories", make, TASK)


def _table(case: int, *, recall: float, previous_all: float) -> dict[str, Measured]:
    """A planted outcome: all recalls alike but that over all positions."""
    alike = dict.fromkeys(("output", "match", "previous_early"), recall)
    return {"memories": {**alike, "previous_all": previous_all, GATE: 1.0}}


def courses(*, output: float, ff: float) -> Mapping[str, Course]:
    """A planted training: W_O^2 is perfect at step 200, W_F .2 nats from the bigrams; they end so much further off."""
    return {
        "recall_copied_token": ((0, 0.0), (200, 1.0), (400, 1 - output)),
        "feed_forward_kl": ((0, 2.0), (200, 0.2), (400, 0.2 + ff)),
    }


def _drift(name: str, *, output: float, ff: float) -> partial[Control]:
    plant = following(WITH_W_F, {"memories-all": courses(output=output, ff=ff)})
    return partial(Control, name=name, plant=plant, n=1)


_all_three = partial(
    Control, name="the predicted sums", plant=holding("previous token", "remapped copy", "copied token")
)
_no_match = partial(Control, name="no remapped copy", plant=holding("previous token", "copied token"))
_no_previous = partial(Control, name="no previous token", plant=holding("remapped copy", "copied token"))
_UNTRAINED = Control(name="untrained", kind="negative", plant=untrained(ALONE))
_early_only = partial(Control, name="only early positions", plant=partial(_table, recall=1.0, previous_all=0.5), n=1)
_at_margin = partial(Control, name="at the margin", plant=partial(_table, recall=RECALLED, previous_all=RECALLED), n=1)
_recall = partial(Criterion, quantifier="most", margin=RECALLED, unit="recall")

_compete = _drift("both deviate", output=0.2, ff=0.5)
_output_only = _drift("only the output deviates", output=0.2, ff=0.0)
_ff_only = _drift("only W_F deviates", output=0.0, ff=0.5)
_neither = _drift("neither deviates", output=0.0, ff=0.0)
_by_margin = _drift("by the margin", output=DEVIATES, ff=DEVIATES)
_output_deviates = Criterion(name="output_deviates", quantifier="most", margin=DEVIATES, unit="recall")
_ff = partial(Criterion, name="ff_deviates", quantifier="most", margin=DEVIATES, unit="nats")

_B4 = Claim(
    id="B4",
    statement="The trained matrices become the predicted memories.",
    system="birth",
    units=ALONE,
    measure=measure,
    gate=LEARNED,
    source="Bietti et al. 2023, Birth of a Transformer",
    parts=tuple(_recall(name=name) for name in ("output", "match", "previous_early")),
    factors={"over": ("queries",)},
    controls=(
        _all_three(kind="positive"),
        _early_only(kind="positive"),
        _no_match(kind="negative"),
        _no_previous(kind="negative"),
        _at_margin(kind="negative"),
        _UNTRAINED,
    ),
)
B4 = _B4.against(
    _B4.rival(
        "late-too",
        "W_K^1 stores all positions, late ones too.",
        source=_B4.source,
        parts=(_recall(name="previous_all"),),
        controls=(
            _all_three(kind="positive"),
            _early_only(kind="negative"),
            _no_previous(kind="negative"),
            _UNTRAINED,
        ),
    ),
)
_B13 = Claim(
    id="B13",
    statement="W_O^2 and W_F eventually compete and deviate from the ideal memories.",
    system="birth",
    units=WITH_W_F,
    measure=deviations,
    source="Bietti et al. 2023, Birth of a Transformer, probes throughout training",
    develops=False,
    parts=(_output_deviates, _ff()),
    controls=(
        _compete(kind="positive"),
        _output_only(kind="negative"),
        _ff_only(kind="negative"),
        _neither(kind="negative"),
        _by_margin(kind="negative"),
    ),
)
B13 = _B13.against(
    _B13.rival(
        "output-only",
        "W_O^2 alone deviates; W_F stays as near the global bigrams as it was.",
        source=_B13.source,
        parts=(_output_deviates, _ff(direction="below")),
        controls=(_output_only(kind="positive"), _compete(kind="negative"), _neither(kind="negative")),
    ),
)
CLAIMS.add(B4.id, B4)
CLAIMS.add(B13.id, B13)
