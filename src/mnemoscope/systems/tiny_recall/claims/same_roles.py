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

from mnemoscope import CLAIMS, Subject
from mnemoscope.analyses import learned
from mnemoscope.judging import EFFECT, GATE, controls
from mnemoscope.systems.tiny_recall.analyses.attention_by_role import attention_by_role, local_binding, on_earlier_y
from mnemoscope.systems.tiny_recall.analyses.carriers import roles_by_carrying
from mnemoscope.systems.tiny_recall.claim_parts import OTHER_TRAINING, UNTRAINED, as_v3, of_v3
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match
from mnemoscope.systems.tiny_recall.constructed import local_binding as binding_model

SCANNING, BINDING = 0.9, 0.5
"""Shares of attention above which a head has the role."""


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


_neither, _carriers = as_v3("one head a skill", dissociated), as_v3("store and match", store_and_match)
_CLAIM = of_v3(
    id="T13",
    statement="The same two roles appear in every seed; only the number of the head changes.",
    source="tiny-recall, article",
    quantifier="every",
    margin=0.0,
    unit="share of attention",
    headline=True,
    controls=(
        *controls(negative=(UNTRAINED,), positive=(as_v3("local binding", binding_model),)),
        *controls(negative=(_neither,)),
    ),
    measure=roles_by_attention,
    factors=OTHER_TRAINING,
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
            controls=controls(negative=(UNTRAINED,), positive=(_carriers,)) + controls(negative=(_neither,)),
            measure=roles_by_carrying,
            prompts=None,
        )
        for word, quantifier, seeds in (("carriers", "every", "seed"), ("carriers-most", "most", "seeds"))
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
