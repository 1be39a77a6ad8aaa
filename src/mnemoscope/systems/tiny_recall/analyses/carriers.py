"""Heads that carry a difference between two prompts: the share of the answer that comes across with a head's output.

Take minimal pairs of one kind. Let c and x be the logit difference (the right answer of the clean prompt minus that of
the corrupted one) on either prompt, and p the same with z of one head exchanged. Means over pairs in the last slot give

    patching_recovery[head] =
        mean(p - x) / mean(c - x)   when z of the clean run is put into the corrupted one (denoising);
        mean(c - p) / mean(c - x)   when that of the corrupted run is put into the clean one (noising),

and these are averaged over the skills. Only `move_repeat`, which concerns recall alone, and the heads of layer 0 are
specific to permutation lookup.

It shows that a head's output carries something in which the prompts differ and on which the answer depends. It does not
show how that is used, nor what both prompts have in common. Shares of heads need not add up to one (see `patching`).
Where clean and corrupted prompts have the same logit difference there is nothing to carry: the share counts as 0.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Float

from mnemoscope import Batch, InputError, PromptPairs, Subject, generator, patch
from mnemoscope.analyses import effects, every_sequence, lowest_skill_accuracy
from mnemoscope.claims import EFFECT, GATE
from mnemoscope.core import in_range, one_of
from mnemoscope.core.metrics import LOGIT_DIFF
from mnemoscope.interventions import Direction

HALF = 0.5
"""Share of a difference above which a head carries it, for `divided`."""
_ONLY_ON_REPEATS = "move_repeat"


def patching_recovery(
    subject: Subject,
    *,
    kind: str,
    skills: Sequence[str] | None = None,
    direction: Direction = "denoising",
    n: int = 512,
) -> Float[np.ndarray, " head"]:
    """Share of the difference between minimal pairs that comes across with z of each head of layer 0, mean over skills.

    The seed draws `n` pairs per skill, or takes all, among all sequences over unseen mappings; `kind` must change the
    answer. Without `skills` all are taken, for `move_repeat` recall. `denoising` tests sufficiency, `noising`
    necessity. A skill that the model has not learned at all counts as 0.
    """
    in_range("n", n, 1, float("inf"))
    batch = every_sequence(subject.task)
    tested = subject.task.skills(batch)
    if skills is None:
        skills = ["recall"] if kind == _ONLY_ON_REPEATS else list(tested)
    shares = []
    for skill in skills:
        one_of("a skill", skill, tested)
        rows = tested[skill].any(1).nonzero()[:, 0]
        shares.append(_shares(subject, batch.select(_drawn(rows, n, subject.seed, kind, skill)), kind, direction))
    return np.mean(shares, axis=0)


def divided(first: Float[np.ndarray, " head"], second: Float[np.ndarray, " head"]) -> float:
    """A measure of how clearly two heads carry two differences, from `patching_recovery`, one each.

    It is the largest value, over ordered pairs (a, b) of different heads, of min(first[a] - 1/2, 1/2 - first[b],
    second[b] - 1/2, 1/2 - second[a]). Above 0 head a carries more than half of the first difference only, b of the
    second.
    """
    if len(first) < 2 or len(first) != len(second):
        raise InputError(f"first and second must have a share for each of two heads or more; got {first} and {second}")
    return max(
        float(min(first[a] - HALF, HALF - first[b], second[b] - HALF, HALF - second[a]))
        for a, b in permutations(range(len(first)), 2)
    )


def roles_by_carrying(subject: Subject, *, direction: Direction = "denoising") -> dict[str, float]:
    """The margin above 1/2 by which one head carries the values and another whether x was seen, and the gate's value.

    Above 0 each carries more than half; the model has two heads or more.
    """
    values = patching_recovery(subject, kind="exchange_answer", direction=direction)
    seen = patching_recovery(subject, kind="toggle_repeat", direction=direction)
    return {GATE: lowest_skill_accuracy(subject), EFFECT: divided(values, seen)}


def _drawn(rows: torch.Tensor, n: int, seed: int, kind: str, skill: str) -> torch.Tensor:
    """At most `n` different rows, in a random order."""
    return rows[torch.randperm(len(rows), generator=generator(seed, "carried", kind, skill))[:n]]


def _shares(subject: Subject, clean: Batch, kind: str, direction: Direction) -> Float[np.ndarray, " head"]:
    pairs = PromptPairs.from_task(subject.task, clean, kind=kind, seed=subject.seed).read_last()
    result = patch(
        subject.model,
        pairs,
        kind="z",
        over=("layer", "head"),
        only={"layer": [0]},
        metrics=(LOGIT_DIFF,),
        directions=(direction,),
    )
    ratio = effects(result, refuse=False).ratio
    return ratio.sel(direction=direction, metric=LOGIT_DIFF.name, layer=0).fillna(0.0).to_numpy()
