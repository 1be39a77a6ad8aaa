"""F4 and F4-softmax: before the fact is known there is a phase in which the relation alone answers.

F4 is linear attention on one-hot embeddings under gradient descent, as published but for batches of 128; facts and
initial weights are drawn by the seed, and the size of these weights is a factor. F4-softmax is the same sentence about
softmax attention on random embeddings with an MLP, under Adam, with facts that all seeds share.
"""

from typing import Any

import numpy as np

from mnemoscope import CLAIMS, Claim, Configuration, Subject
from mnemoscope.claims import Case, Measured, case, controls, most
from mnemoscope.models.constructed import prescribe_course
from mnemoscope.systems.factual_recall.analyses import NEAR, stages
from mnemoscope.systems.factual_recall.claim_parts import (
    FIRST_DRAWN,
    LINEAR,
    SIZES,
    SOFTMAX,
    TEXTS,
    course,
    facts_claim,
    followed,
    task_of,
)

PHASE, TOGETHER = 0.25, 0.1


def phases(subject: Subject, *, near: float = NEAR) -> Measured:
    """The phases near p(a | r) and near p(a | s) as shares of the steps until the fact is known (`relation`,
    `subject`).

    `apart` is how much later the fact is known than the relation, as such a share. A model counts as near up to a
    divergence of `near` nats.
    """
    task, tracked = task_of(subject), followed(subject)
    sizes = {"n_relations": task.n_relations, "n_answers": task.n_answers, "near": near}
    found = stages(tracked, **sizes)
    by_subject = stages(tracked.assign(kl_relation=tracked.kl_subject), **sizes)
    last = float(tracked.step[-1])
    fact, relation = (float(found[name].fillna(last)) for name in ("fact_known", "relation_known"))
    return {
        "relation": float(np.clip(found.share, 0, 1)),
        "subject": float(np.clip(by_subject.share, 0, 1)),
        "apart": max(fact - relation, 0.0) / max(fact, 1.0),
    }


def about(id: str, models: str, units: dict[str, Configuration], *, end: float, **fields: Any) -> Claim:
    """F4 about models, whose training is planted with `end` steps until the fact is known."""

    def planted(name: str, *steps: float, **others: float) -> Case:
        return case(name, prescribe_course(units, dict.fromkeys(units, course(*steps, **others))), n=1)

    hallucinates = planted("by the relation for three fifths", 0.4 * end, end)
    at_once = planted("at once", end, end)
    by_subject = planted("by the subject", end, end, by_subject=0.4 * end)
    briefly = planted("by the relation for a tenth", 0.9 * end, end)
    claim = facts_claim(
        id=id,
        statement=f"Before {models} know a fact they answer by the relation alone for a while.",
        units=units,
        measure=phases,
        explanation=TEXTS.explain(id, near=NEAR),
        develops=False,
        parts=(most("relation", "above", PHASE, "share of the steps until the fact is known"),),
        controls=controls(positive=(hallucinates,), negative=(at_once, by_subject, briefly)),
        **fields,
    )
    return claim.against(
        claim.rival(
            "subject",
            "They answer by the subject alone for a while.",
            parts=(most("subject", "above", PHASE, "share of the steps until the fact is known"),),
            controls=controls(positive=(by_subject,), negative=(hallucinates, at_once)),
        ),
        claim.rival(
            "together",
            "Relation and fact become known together.",
            parts=(most("apart", "below", TOGETHER, "share of the steps until the fact is known"),),
            controls=controls(positive=(at_once,), negative=(hallucinates,)),
        ),
    )


_VARIED = {"near": (0.05, 0.2)}
F4 = about(
    "F4",
    "linear attentions with small initial weights",
    LINEAR,
    end=4480,
    first_seed=FIRST_DRAWN,
    version=2,
    factors={**_VARIED, "model.initial_size": SIZES},
)
F4_SOFTMAX = about("F4-softmax", "softmax models", SOFTMAX, end=480, factors=_VARIED)
for _claim in (F4, F4_SOFTMAX):
    CLAIMS.add(_claim.id, _claim)
