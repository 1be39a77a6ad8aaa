"""T25: the next x follows no learnable pattern, so that only y is worth predicting.

The generator shuffles x, so that the claim is about the data: an error there would refute it.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope import CLAIMS, generator
from mnemoscope.claims import EFFECT, Measured, case, controls, most
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.tiny_recall.claim_parts import TEXTS, asked_anew
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

N_COUNTED, N_TESTED = 20_000, 5_000
MARGIN = 0.03
_VALUES = PermutationLookup().n_values


def measure(draw: int) -> dict[str, float]:
    """The advantage over guessing the next x from what is left, as a share of sequences; and the rival's `last`.

    The draw also chooses the split of the mappings.
    """
    return advantages(*_pairs(PermutationLookup(), draw))


def advantages(x: Int[Tensor, "batch slot"], y: Int[Tensor, "batch slot"]) -> dict[str, float]:
    """The advantages of predictors that count in the first rows and are tested on the last 5,000, or on half.

    x has values from 1, one sequence per row; y are their images. Half of the rows are tested where these are fewer.
    """
    n_values, n_tested = x.shape[1], min(N_TESTED, len(x) // 2)
    found = {}
    for slot in range(2, n_values + 1):
        for name, context in _contexts(x, y, slot).items():
            code = context.unique(dim=0, return_inverse=True)[1]
            right = _right(code, x[:, slot - 1] - 1, n_values, n_tested)
            found[f"{name}, slot {slot}"] = right - 1 / (n_values + 1 - slot)
    last = found[f"left, slot {n_values}"] + 1 - 1 / n_values
    return {EFFECT: max(found.values()), "last": last, **found}


def _contexts(
    x: Int[Tensor, "batch slot"], y: Int[Tensor, "batch slot"], slot: int
) -> Mapping[str, Int[Tensor, "batch context"]]:
    """The contexts before a slot (from 1), by name, as rows of numbers."""
    earlier = x[:, : slot - 1]
    left = torch.zeros(len(x), x.shape[1], dtype=torch.long).scatter(1, earlier - 1, 1)
    return {"left": left, "ordered": earlier, "with y": torch.cat((left, y[:, slot - 2, None]), 1)}


def _right(code: Int[Tensor, " batch"], following: Int[Tensor, " batch"], n_values: int, n_tested: int) -> float:
    """Share of right predictions in the last rows, by what followed each context most often in the others."""
    cells = code * n_values + following
    n_cells = int(code.max() + 1) * n_values
    counts = cells[:-n_tested].bincount(minlength=n_cells).view(-1, n_values)
    return float((counts.argmax(1)[code[-n_tested:]] == following[-n_tested:]).double().mean())


def _pairs(task: PermutationLookup, draw: int) -> tuple[Int[Tensor, "batch slot"], Int[Tensor, "batch slot"]]:
    """The x and the y of sequences over training mappings."""
    stream = generator(draw, "next x from what is left")
    latents = task.for_seed(draw).sample(N_COUNTED + N_TESTED, split="train", generator=stream).latents
    return latents["x"], latents["y"]


def permuted(number: int) -> dict[str, Measured]:
    """A control: permutations by another generator, that of sorting random numbers, and y drawn apart from x."""
    return {"draw": advantages(*(_random(number, name).argsort(1) + 1 for name in ("x", "y")))}


def independent(number: int) -> dict[str, Measured]:
    """A control: every x drawn by itself, whatever the others are."""
    x, y = ((_random(number, name) * _VALUES).long() + 1 for name in ("independent x", "independent y"))
    return {"draw": advantages(x, y)}


def in_order(number: int) -> dict[str, Measured]:
    """A control: x always in the same order."""
    return {"draw": advantages(*_pairs(PermutationLookup(shuffle_x=False), FIRST_CONTROL_SEED + number))}


def one_in_ten(number: int) -> dict[str, Measured]:
    """A control: in one of ten sequences x comes in the order 1 to V."""
    x, y = (_random(number, name).argsort(1) + 1 for name in ("x", "y"))
    in_order = _random(number, "which")[:, 0] < 1 / 10
    return {"draw": advantages(torch.where(in_order[:, None], torch.arange(1, _VALUES + 1), x), y)}


def _random(number: int, name: str) -> Tensor:
    """Numbers from 0 to 1 for every slot."""
    return torch.rand(
        N_COUNTED + N_TESTED, _VALUES, generator=generator(FIRST_CONTROL_SEED + number, name), dtype=torch.float32
    )


_permuted, _independent, _in_order, _one_in_ten = (
    case(name, plant)
    for name, plant in (
        ("random permutations", permuted),
        ("x drawn independently", independent),
        ("x in one order", in_order),
        ("one sequence of ten in one order", one_in_ten),
    )
)
_CLAIM = asked_anew(
    id="T25",
    statement="Beyond which x are left, the next x follows no learnable pattern.",
    source="tiny-recall, article",
    parts=(most(EFFECT, "within", MARGIN, "accuracy above what is left"),),
    replicate="draw",
    first_seed=80,
    last_seed=95,
    version=3,
    controls=controls(positive=(_permuted,), negative=(_in_order, _one_in_ten, _independent)),
    measure=measure,
    explanation=TEXTS.explain("T25", n_counted=N_COUNTED, n_tested=N_TESTED, margin=MARGIN),
    develops=False,
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "unused",
        "What is left can be predicted: the last x is the one that has not been used yet.",
        parts=(most("last", "above", 0.5, "accuracy above chance"),),
        controls=controls(positive=(_permuted, _in_order), negative=(_independent,)),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
