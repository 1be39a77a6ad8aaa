"""T20 and T24: what order is good for. Positions are needed to see it, and a fixed order is a shortcut.

T20: without positional embeddings the model is blind to order. Refuted by one seed that gives another answer when x
and y inside an earlier pair are exchanged and the last x stays: the largest difference of the probability of any
answer in the last slot, over every sequence over unseen mappings and each of the four pairs, must be below 1e-4.

T24: if x always comes in the same order, the model takes a positional shortcut and does not read the context. Refuted
if in most seeds it is right in half of the last slots or more where that takes reading: on unseen mappings, without a
repeat, in its own order of x. T24-reads says that it does read, T24-ignores-x that it reads y and ignores x: it is
as right when x comes in other orders, which it has never seen (all 120 orders, of which its own is one).

It shows what the answers depend on. It does not show by which weights, and an accuracy below one half does not show
that a shortcut is taken: a model that has learned nothing does not read either.
"""

from dataclasses import replace

import torch

from mnemoscope import CLAIMS, Configuration, InputError, Subject
from mnemoscope.analyses import accuracy_by_skill, every_sequence, log_probs
from mnemoscope.core import metrics
from mnemoscope.judging import EFFECT, case, controls, most
from mnemoscope.models import planted, untrained
from mnemoscope.systems.tiny_recall.claim_parts import tiny_recall, units
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

BLIND = units("v3-no-positions")
_SEEING = {"v3-no-positions": Configuration(preset="v3", recipe="quick")}
ORDERED = units("v1-ordered")


@torch.no_grad()
def blindness(subject: Subject) -> dict[str, float]:
    """The largest change of a probability when x and y of an earlier pair change places, and the accuracies.

    Args:
        subject: A model of permutation lookup.

    Raises:
        InputError: The model is too small for the task.
    """
    batch, task = every_sequence(subject.task), subject.task
    before = log_probs(subject.model, task, batch)
    right = metrics.correct(before, batch.targets)
    answers = before[:, -1, list(task.answers)].exp()
    largest = 0.0
    for x in range(0, batch.inputs.shape[1] - 1, 2):
        order = list(range(batch.inputs.shape[1]))
        order[x], order[x + 1] = x + 1, x
        after = log_probs(subject.model, task, replace(batch, inputs=batch.inputs[:, order]))
        largest = max(largest, float((after[:, -1, list(task.answers)].exp() - answers).abs().max()))
    skills = {name: float(right[mask].double().mean()) for name, mask in task.skills(batch).items()}
    return {EFFECT: largest, **skills}


def reading(subject: Subject) -> dict[str, float]:
    """Accuracy of elimination on unseen mappings in the model's own order of x, and in all orders.

    Args:
        subject: A model of permutation lookup.

    Raises:
        InputError: The task is another one, or the model is too small for it.
    """
    if not isinstance(subject.task, PermutationLookup):
        raise InputError(f"the task must be permutation lookup, whose x can be shuffled; got {subject.task!r}")
    shuffled = replace(subject, task=replace(subject.task, shuffle_x=True))
    own, other = (accuracy_by_skill(of)["elimination"] for of in (subject, shuffled))
    return {EFFECT: own, "own_order": own, "shuffled": other}


_reads = case("elimination only", planted("v1-ordered", elimination_only, PermutationLookup(shuffle_x=False)))
_untrained = case("untrained", untrained(ORDERED))
_OWN, _SHUFFLED = most("own_order", "above", 0.99, "accuracy"), most("shuffled", "above", 0.9, "accuracy")
T20 = tiny_recall(
    id="T20",
    statement="Without positional embeddings the model is blind to the order of tokens.",
    source="tiny-recall, article",
    quantifier="every",
    margin=1e-4,
    direction="below",
    unit="probability",
    units=BLIND,
    controls=controls(
        positive=(case("untrained without positions", untrained(BLIND)),),
        negative=(case("untrained with positions", untrained(_SEEING)),),
    ),
    measure=blindness,
    prompts="enumerated",
)
_T24 = tiny_recall(
    id="T24",
    statement="Without shuffling the order of x the model does not read the context.",
    source="tiny-recall, article",
    quantifier="most",
    margin=0.5,
    direction="below",
    unit="accuracy",
    units=ORDERED,
    controls=controls(positive=(_untrained,), negative=(_reads,)),
    measure=reading,
    prompts="enumerated",
)
T24 = _T24.against(
    *(
        _T24.rival(word, statement, parts=parts, controls=controls(negative=(_untrained,), positive=(_reads,)))
        for word, statement, parts in (
            ("reads", "It reads the context: it eliminates on unseen mappings.", (_OWN,)),
            ("ignores-x", "It reads y and ignores x: it eliminates in any order of x.", (_OWN, _SHUFFLED)),
        )
    )
)
for _claim in (T20, T24):
    CLAIMS.add(_claim.id, _claim)
