"""T13: the same two roles appear for every seed; only the number of the head changes.

Refuted by one seed whose two heads do not attend as claimed: one from x to earlier y, the other from y to
itself and from x to the y just before. With scanning, the elimination head's share of attention from x on earlier y,
and binding, the smaller of the other head's shares from y on itself and from x on the y just before (heads by role and
shares as in `analyses.attention_by_role`),

    effect = min(scanning - 0.9, binding - 0.5)

The rivals say that the same two roles appear, in all seeds or in most, and that they are other ones: roles by what
heads *carry*. `carriers` is above 0 where one head carries more than half of the difference in logits between
sequences with another answer, and less than half of that between a repeat and a fresh sequence, and the other head the
other way round (`analyses.carriers`). Their pairs are drawn, at most 512 per skill, and the uncertainty of the effect
per seed is not known: an exception leaves "in every seed" undecided and does not refute it.

It shows whether seeds agree in this description of their heads. Sixteen or 32 seeds do not exclude a rare
exception, and seeds may agree in a description that misses what the heads are for.
"""

from mnemoscope import CLAIMS, Claim, Configuration, Subject
from mnemoscope.analyses import LEARNED, learned
from mnemoscope.judging import EFFECT, GATE
from mnemoscope.models import planted, untrained
from mnemoscope.systems.tiny_recall.analyses.attention_by_role import (
    attention_by_role,
    local_binding,
    on_earlier_y,
)
from mnemoscope.systems.tiny_recall.analyses.carriers import divided, patching_recovery
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match
from mnemoscope.systems.tiny_recall.constructed import local_binding as binding_model
from mnemoscope.systems.tiny_recall.controls import REPEATS, negative, positive

SCANNING, BINDING = 0.9, 0.5
"""Shares of attention above which a head has the role."""
UNITS = {"v3": Configuration(preset="v3", recipe="published")}


def roles_by_attention(subject: Subject) -> dict[str, float]:
    """How far both heads are above the share of attention that makes their role.

    Args:
        subject: A model of two heads or more.

    Raises:
        InputError: The model is too small for the task.
    """
    heads = attention_by_role(subject)
    scanning, binding = float(on_earlier_y(heads).mean()), min(local_binding(heads))
    return {
        GATE: learned(subject),
        EFFECT: min(scanning - SCANNING, binding - BINDING),
        "scanning": scanning,
        "binding": binding,
    }


def roles_by_carrying(subject: Subject) -> dict[str, float]:
    """How clearly one head carries the values and the other whether the last x was seen, as a share above one half.

    Args:
        subject: A model of two heads or more; its seed draws the pairs.

    Raises:
        InputError: The model has one head, or is too small for the task.
    """
    values, seen = patching_recovery(subject, kind="exchange_answer"), patching_recovery(subject, kind="toggle_repeat")
    return {GATE: learned(subject), EFFECT: divided(values, seen)}


_UNTRAINED = negative("untrained", untrained(UNITS))
_NEITHER = negative("one head a skill", planted("v3", dissociated, REPEATS))
_CLAIM = Claim(
    id="T13",
    system="tiny-recall",
    statement="The same two roles appear in every seed; only the number of the head changes.",
    source="tiny-recall, article",
    quantifier="every",
    margin=0.0,
    unit="share of attention",
    gate=LEARNED,
    units=UNITS,
    n_replicates=32,
    headline=True,
    controls=(_UNTRAINED, positive("local binding", planted("v3", binding_model, REPEATS)), _NEITHER),
    measure=roles_by_attention,
    factors={"recipe": ("quick",), "model.normalization": ("none",)},
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    *(
        _CLAIM.rival(
            word,
            f"In {quantifier} {seeds} one head carries the values and the other the repeat.",
            quantifier=quantifier,
            margin=0.0,
            unit="share of the logit difference",
            controls=(_UNTRAINED, positive("store and match", planted("v3", store_and_match, REPEATS)), _NEITHER),
            measure=roles_by_carrying,
            prompts=None,
        )
        for word, quantifier, seeds in (("carriers", "every", "seed"), ("carriers-most", "most", "seeds"))
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
