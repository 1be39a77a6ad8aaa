"""T25: the next x follows no learnable pattern, so that only y is worth predicting.

Refuted if the next x can be predicted better than by chance from the x so far. No model is asked: the predictor counts,
in 4,000 sequences of v1's task, which x follows which set of x so far, and names the most frequent one; it is tested
on 1,000 other sequences.

    slot s (2 to V) = share of right predictions of x in slot s - 1/V
    effect = the largest of them

"None is learnable" is an equivalence: the mean over draws lies within the margin. A set that was never seen counts as
a guess of the lowest value.

It shows what can be predicted from the set of x so far; a pattern in their order, or in y, is not looked for. It does
not show what a model that is trained on it learns.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope import CLAIMS, Criterion, generator
from mnemoscope.judging import EFFECT, Measured, case, controls
from mnemoscope.models import FIRST_PLANTED
from mnemoscope.systems.tiny_recall.claim_parts import tiny_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

N_COUNTED, N_TESTED = 4000, 1000
_UNIT = "accuracy above chance"


def measure(draw: int, *, repeats: float = 0.0) -> dict[str, float]:
    """By how much the next x can be predicted better than by chance, as a share of sequences.

    Args:
        draw: Number of the draw; it also chooses the split of the mappings.
        repeats: Share of sequences whose last x repeats an earlier one.

    Raises:
        InputError: `repeats` is no share.
    """
    return advantages(_orders(PermutationLookup(repeat_ratio=repeats), draw), PermutationLookup().n_values)


def advantages(x: Int[Tensor, "batch slot"], n_values: int) -> dict[str, float]:
    """Of a predictor that counts in the first 4,000 rows, tested on the others.

    Args:
        x: Values from 1, one sequence per row; more than 4,000 of them.
        n_values: How many values there are.
    """
    assert len(x) > N_COUNTED
    by_slot = {}
    for slot in range(2, x.shape[1] + 1):
        earlier, following = x[:, : slot - 1], x[:, slot - 1] - 1
        seen = torch.zeros(len(x), n_values, dtype=torch.long).scatter(1, earlier - 1, 1)
        code = (seen * 2 ** torch.arange(n_values)).sum(1)
        cells = code * n_values + following
        counts = cells[:N_COUNTED].bincount(minlength=2**n_values * n_values).view(-1, n_values)
        right = counts.argmax(1)[code[N_COUNTED:]] == following[N_COUNTED:]
        by_slot[f"slot_{slot}"] = float(right.double().mean()) - 1 / n_values
    return {EFFECT: max(by_slot.values()), **by_slot}


def _orders(task: PermutationLookup, draw: int) -> Int[Tensor, "batch slot"]:
    """The x of sequences over training mappings."""
    stream = generator(draw, "next x")
    return task.for_seed(draw).sample(N_COUNTED + N_TESTED, split="train", generator=stream).latents["x"]


def independent(number: int) -> dict[str, Measured]:
    """A control: every x drawn by itself, whatever the others are."""
    n_values = PermutationLookup().n_values
    stream = generator(FIRST_PLANTED + number, "independent x")
    x = torch.randint(1, n_values + 1, (N_COUNTED + N_TESTED, n_values), generator=stream)
    return {"draw": advantages(x, n_values)}


def in_order(number: int) -> dict[str, Measured]:
    """A control: x always in the same order."""
    task = PermutationLookup(shuffle_x=False)
    return {"draw": advantages(_orders(task, FIRST_PLANTED + number), task.n_values)}


_independent, _in_order = case("x drawn independently", independent), case("x in one order", in_order)
_CLAIM = tiny_recall(
    id="T25",
    statement="The next x follows no learnable pattern.",
    source="tiny-recall, article",
    quantifier="equivalence",
    margin=0.05,
    direction="within",
    unit=_UNIT,
    replicate="draw",
    controls=controls(positive=(_independent,), negative=(_in_order,)),
    measure=measure,
    factors={"repeats": (0.3,)},
    develops=False,
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "unused",
        "The last x is the one that has not been used yet.",
        parts=(Criterion(name="slot_5", quantifier="mean", margin=0.5, unit=_UNIT),),
        controls=controls(positive=(_in_order,), negative=(_independent,)),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
