"""T20 and T24: what order is good for. Positions are needed to see it, and a fixed order is a shortcut.

With one layer T20's blindness follows from the architecture. What may come out otherwise is what it costs.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import CLAIMS, Batch, Gate, HookedModel, InputError, Subject
from mnemoscope.analyses import accuracy_by_skill, every_sequence, log_probs
from mnemoscope.claims import EFFECT, GATE, Case, Measured, case, controls, most, table
from mnemoscope.core import metrics
from mnemoscope.models import FIRST_CONTROL_SEED, combined, set_by_hand, untrained
from mnemoscope.systems.tiny_recall.analyses.predictions import blind_reader
from mnemoscope.systems.tiny_recall.claim_parts import REPEATS, TEXTS, asked_anew, units
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only
from mnemoscope.systems.tiny_recall.permutations import exchange
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup, lookup_task

ORDER = units("v3-no-positions", "v3")
ORDERED = units("v1-ordered")
EXACT_COST = 0.575
"""Nats in the last slot that the exact reader loses by being blind to order, with five values and 30 % repeats."""
TENTH = EXACT_COST / 10


@torch.no_grad()
def blindness(subject: Subject) -> dict[str, float]:
    """The `loss` in the last slot on the mixture over all mappings and that of the `exact` blind reader, both in nats.

    Beside them the largest `change` of a probability on unseen mappings when x and y of an earlier pair change places,
    and the accuracies there.
    """
    task = lookup_task(subject.task)
    batch = every_sequence(task, "all")
    assert batch.weights is not None
    share, right = batch.weights.double() / batch.weights.double().sum(), batch.targets[:, -1]
    given = {"loss": _at_the_end(subject.model, task, batch), "exact": blind_reader(task, batch).log()}
    losses = {name: -float((share * metrics.at_target(of, right)).sum()) for name, of in given.items()}
    return {**losses, "change": _change(subject.model, task, every_sequence(task)), **accuracy_by_skill(subject)}


def _at_the_end(model: HookedModel, task: PermutationLookup, batch: Batch) -> Float[Tensor, "batch d_vocab"]:
    """Log-probabilities in the last slot, without the work for the others."""
    last = torch.zeros_like(batch.scored)
    last[:, -1] = True
    return log_probs(model, task, batch, where=last)[:, -1]


def _change(model: HookedModel, task: PermutationLookup, batch: Batch) -> float:
    """The largest change of a probability in the last slot when x and y of an earlier pair change places."""
    answers = list(task.answers)
    before = _at_the_end(model, task, batch)[:, answers].exp()
    largest = 0.0
    for x in range(0, batch.inputs.shape[1] - 1, 2):
        order = list(range(batch.inputs.shape[1]))
        order[x], order[x + 1] = x + 1, x
        after = _at_the_end(model, task, replace(batch, inputs=batch.inputs[:, order]))[:, answers].exp()
        largest = max(largest, float((after - before).abs().max()))
    return largest


def above_exact(measured: Mapping[str, Measured]) -> Measured:
    """The loss of the model without positions above that of the exact blind reader (the effect).

    Beside it the cost of blindness against v3, and the numbers of both.
    """
    blind, v3 = measured["v3-no-positions"], measured["v3"]
    return {
        EFFECT: float(blind["loss"]) - float(blind["exact"]),
        "cost": float(blind["loss"]) - float(v3["loss"]),
        **{f"{unit} {name}": float(value) for unit, found in measured.items() for name, value in found.items()},
    }


def reading(subject: Subject) -> dict[str, float]:
    """The share of answers on unseen mappings that change with the context (the effect, and `changed`).

    Beside it accuracy of elimination in the model's own order of x and in all orders, and `GATE`: by how much accuracy
    on training mappings exceeds that of their most frequent last y.
    """
    if not isinstance(subject.task, PermutationLookup):
        raise InputError(f"the task must be permutation lookup, whose x can be shuffled; got {subject.task!r}")
    shuffled = replace(subject, task=replace(subject.task, shuffle_x=True))
    own, other = (accuracy_by_skill(of)["elimination"] for of in (subject, shuffled))
    training = accuracy_by_skill(subject, split="train")["elimination"]
    last = subject.task.mappings("train")[:, -1]
    changed = _changed(subject.model, subject.task)
    return {
        GATE: training - float(last.bincount().max()) / len(last),
        EFFECT: changed,
        "changed": changed,
        "own_order": own,
        "shuffled": other,
        "training": training,
    }


def _changed(model: HookedModel, task: PermutationLookup) -> float:
    """Share of pairs in which the last answer changes: an earlier y and the unused value change places."""
    batch = every_sequence(task)
    batch = batch.select(task.subgroups(batch)["fresh"])
    x, mapping = batch.latents["x"], batch.latents["mapping"]
    before = log_probs(model, task, batch)[:, -1].argmax(-1)
    changed = []
    for slot in range(task.n_values - 1):
        pair = task.batch(x, exchange(mapping, x[:, slot], x[:, -1]))
        changed.append(log_probs(model, task, pair)[:, -1].argmax(-1) != before)
    return float(torch.stack(changed).double().mean())


@torch.no_grad()
def most_frequent(number: int) -> dict[str, Subject]:
    """A control: a model that takes the shortcut and answers the most frequent last y of its training mappings."""
    seed = FIRST_CONTROL_SEED + number
    task = PermutationLookup(shuffle_x=False).for_seed(seed)
    model = elimination_only()
    model.blocks[0].attn.W_O.zero_()
    model.b_U[int(task.mappings("train")[:, -1].bincount().argmax())] = 1.0
    return {"v1-ordered": Subject(model=model, task=task, seed=seed)}


def _losses(name: str, excess: float) -> Case:
    """A planted outcome for T20: by how much the model without positions differs from the exact blind reader."""
    blind = {"loss": EXACT_COST + excess, "exact": EXACT_COST}
    return table(name, {"v3-no-positions": blind, "v3": {"loss": 0.0, "exact": EXACT_COST}})


T20 = asked_anew(
    id="T20",
    statement="Without positional embeddings the model is blind to the order of tokens, and loses what that costs.",
    source="tiny-recall, article",
    quantifier="most",
    margin=TENTH,
    direction="within",
    unit="nats",
    units=ORDER,
    controls=controls(
        positive=(_losses("the exact blind reader", 0.0), _losses("half the margin above it", TENTH / 2)),
        negative=(
            case(
                "sees order by hand",
                combined(*(set_by_hand(name, dissociated, REPEATS) for name in ORDER)),
                n=1,
            ),
            _losses("at the margin", TENTH),
            case("untrained", untrained(ORDER)),
        ),
    ),
    measure=blindness,
    explanation=TEXTS.explain("T20", exact_cost=EXACT_COST),
    compare=above_exact,
    prompts="enumerated",
)

HALF = 0.5
"""Of answers that change: half way from a model that does not read to one that is always right."""
READS = 0.99
ANY_ORDER = (1 / 5 + 1) / 2
"""Accuracy half way from chance to always."""
_reads = case("elimination only", set_by_hand("v1-ordered", elimination_only, PermutationLookup(shuffle_x=False)))
_shortcut = case("the most frequent last y", most_frequent)
_half = table(
    "at the margins",
    {"v1-ordered": {GATE: 0.5, EFFECT: HALF, "changed": READS, "own_order": READS, "shuffled": ANY_ORDER}},
)
_READS = (most("changed", "above", READS, "share"), most("own_order", "above", READS, "accuracy"))
_SHUFFLED = most("shuffled", "above", ANY_ORDER, "accuracy")
_T24 = asked_anew(
    id="T24",
    statement="Without shuffling the order of x the model takes a shortcut: its answers ignore the context.",
    source="tiny-recall, article",
    quantifier="most",
    margin=HALF,
    direction="below",
    unit="share",
    gate=Gate(
        statement="answers training mappings as well as their most frequent last y would, or better", at_least=0.0
    ),
    units=ORDERED,
    controls=controls(positive=(_shortcut,), negative=(_reads, _half)),
    measure=reading,
    explanation=TEXTS.explain("T24", reads=READS, any_order=ANY_ORDER),
    prompts="enumerated",
)
T24 = _T24.against(
    *(
        _T24.rival(word, statement, parts=parts, controls=controls(negative=(_shortcut, _half), positive=(_reads,)))
        for word, statement, parts in (
            ("reads", "It reads the context: its answer changes with it, and is right on unseen mappings.", _READS),
            ("ignores-x", "It reads y and ignores x: it eliminates in any order of x.", (_READS[1], _SHUFFLED)),
        )
    )
)
for _claim in (T20, T24):
    CLAIMS.add(_claim.id, _claim)
