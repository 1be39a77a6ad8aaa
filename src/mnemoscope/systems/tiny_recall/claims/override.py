"""T22: on the conflict set recall overrides an elimination signal that is still there."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import (
    CLAIMS,
    Batch,
    InputError,
    Intervention,
    Named,
    Site,
    Subject,
    run_with,
)
from mnemoscope.analyses import every_sequence, lowest_skill_accuracy, make_removal, to_log_probs
from mnemoscope.claims import GATE, controls, most
from mnemoscope.core import CHUNK, stream_seed
from mnemoscope.core.metrics import at_target
from mnemoscope.interventions import Recordings
from mnemoscope.systems.tiny_recall.analyses.attention import heads_by_need
from mnemoscope.systems.tiny_recall.analyses.removal_costs import all_heads
from mnemoscope.systems.tiny_recall.claim_parts import (
    OTHER_TRAINING,
    TEXTS,
    UNTRAINED,
    as_v3,
    of_v3,
)
from mnemoscope.systems.tiny_recall.constructed import dissociated

PRESENT = 1.0
OVERRIDDEN = 0.5
GONE = 0.5


def measure(subject: Subject, *, kind: Literal["mean", "resample"] = "mean") -> dict[str, float]:
    """The lead of the unused value on the conflict set, in nats (`present`), and its share without the other head
    (`override`).

    It leads over values that are neither unused nor recalled. `intact` is the share answered with the unused value when
    nothing is replaced. The other of two heads gets the mean of z over all fresh sequences, or that of a random one,
    which the seed draws.
    """
    batch = every_sequence(subject.task)
    groups = subject.task.subgroups(batch)
    conflict, fresh = batch.select(groups["repeat"]), replace(batch.select(groups["fresh"]), weights=None)
    without = make_removal(kind, _other_head(subject), Named(name="fresh sequences", value=fresh))
    intact, removed = (_answers(subject, conflict, interventions) for interventions in ([], [without]))
    unused = conflict.latents["unused"]
    return {
        GATE: lowest_skill_accuracy(subject),
        "present": float(unused_above_wrong(intact, unused, conflict.latents["recalled"], subject.task.answers).mean()),
        "override": float((removed.argmax(-1) == unused).double().mean()),
        "intact": float((intact.argmax(-1) == unused).double().mean()),
    }


def unused_above_wrong(
    log_probs: Float[Tensor, "batch d_vocab"],
    unused: Int[Tensor, " batch"],
    recalled: Int[Tensor, " batch"],
    answers: Sequence[int],
) -> Float[Tensor, " batch"]:
    """The unused value's log-probability minus the mean of those that are neither unused nor recalled, in nats."""
    wrong = torch.zeros_like(log_probs, dtype=torch.bool)
    wrong[:, list(answers)] = True
    wrong.scatter_(1, torch.stack((unused, recalled), 1), False)
    mean = torch.where(wrong, log_probs, 0.0).sum(1) / wrong.sum(1)
    return at_target(log_probs, unused) - mean


def _other_head(subject: Subject) -> Site:
    """The head that elimination needs less."""
    heads = {str(site): site for site in all_heads(subject.model)}
    if len(heads) != 2:
        raise InputError(f"the model must have two heads in all, since one is the other; got {len(heads)}")
    return heads[list(heads_by_need(subject))[1]]


@torch.no_grad()
def _answers(subject: Subject, batch: Batch, interventions: Sequence[Intervention]) -> Float[Tensor, "batch d_vocab"]:
    """Log-probabilities at the last position."""
    recordings = Recordings(subject.model)
    found = []
    for i, rows in enumerate(torch.arange(len(batch)).split(CHUNK)):
        seed = stream_seed(subject.seed, "override", i)
        logits = run_with(subject.model, batch.select(rows), interventions, seed=seed, recordings=recordings)
        found.append(to_log_probs(logits[:, -1]))
    return torch.cat(found)


# A share of answers moves by whole sequences where two values are close.
_overrides = partial(as_v3("recall overrides", dissociated, n=1), elsewhere=1e-3)
_faint = partial(as_v3("a faint signal", partial(dissociated, margin=0.4), n=1), elsewhere=1e-3)
_untrained = partial(UNTRAINED, elsewhere=1e-3)
_CLAIM = of_v3(
    id="T22",
    statement="On the conflict set the unused value is still favoured, and wins once the other head sees no repeat.",
    source="tiny-recall, article on the model with repeats",
    parts=(most("present", "above", PRESENT, "nats"), most("override", "above", OVERRIDDEN, "share")),
    controls=controls(positive=(_overrides,), negative=(_faint, _untrained)),
    measure=measure,
    explanation=TEXTS.explain("T22"),
    factors={"kind": ("resample",), **OTHER_TRAINING},
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "gone",
        "Nothing is left of elimination on the conflict set.",
        parts=(most("present", "within", GONE, "nats"),),
        controls=controls(positive=(_faint,), negative=(_overrides,)),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
