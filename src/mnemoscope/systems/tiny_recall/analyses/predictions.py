"""The answers of a model: slot by slot on one sequence, and where elimination and recall give different answers.

On the *conflict set* four pairs are kept and the last x repeats an earlier one: recall answers that x's y, elimination
the one value not used yet. The published memorisation probe is the case of slot 1.

It shows which answer a model gives, not by which mechanism.

The task's knowledge of the answers at one slot, in words: the target, the answer of recall, what is ruled out.

A value that an earlier pair has used is ruled out unless x repeats: then the y of the earlier pair is the only answer.

The exact reader of the last slot that is blind to order: it sees which tokens stood there and not where.

It knows the earlier tokens as a bag and the last x, and gives the posterior of the last answer under all permutations
with the repeats of the task::

    p(y | bag, last x) = weight of sequences with this bag, this last x and answer y / weight of those with these two

With five values and 30 % repeats it is always right where x is new: the two tokens that stand in the bag only once are
the missing x and the unused y. It cannot tell which y belonged to a repeated x. Over all mappings it loses .575 nats in
the last slot, and no reader that is blind to order can lose less.

It shows the cost of blindness alone. A model that loses as much need not be blind.
"""

from functools import lru_cache

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import every_sequence, log_probs
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


def predict(model: HookedModel, task: PermutationLookup, sequence: str | Batch) -> xr.Dataset:
    """Distribution over the values at every slot of one sequence.

    The sequence is `x1 y1 x2 y2 ...` as text, ending with an x or with its y; or a batch of one sequence.

    Over (slot, value): `probability` of the model, `bayes` (uniform over the consistent permutations) and `used` (an
    earlier pair has the value as its y). Over slot: `x`, `target` (0: not given) and `repeats`, the earlier slot with
    the same x (0: none). Raises InputError where the sequence is refused or the model is too small.
    """
    batch = task.parse(sequence) if isinstance(sequence, str) else sequence
    values = list(task.answers)
    x, y = batch.inputs[0, ::2], batch.targets[0, ::2]
    seen = x.tolist()
    first = [seen.index(each) + 1 for each in seen]
    return xr.Dataset(
        {
            "probability": (("slot", "value"), log_probs(model, task, batch)[0, ::2].exp()[:, values].numpy()),
            "bayes": (("slot", "value"), task.reference(batch, "bayes")[0, ::2][:, values].numpy()),
            "used": (("slot", "value"), [[value in y[:slot].tolist() for value in values] for slot in range(len(y))]),
            "x": ("slot", x.tolist()),
            "target": ("slot", y.tolist()),
            "repeats": ("slot", [slot if slot <= place else 0 for place, slot in enumerate(first)]),
        },
        coords={"slot": list(range(1, len(x) + 1)), "value": values},
    )


def conflict(model: HookedModel, task: PermutationLookup, *, split: str = "test") -> xr.Dataset:
    """Probability of either answer on every conflict sequence of `split`, by the slot that is repeated.

    Over `source_slot`: the mean probability of the recalled value, the unused value and anything else (`p_recalled`,
    `p_unused`, `p_other`), and how often each of the first two is the top answer (`chose_recalled`, `chose_unused`).
    """
    batch = task.conflict_set(split=split)
    answers = log_probs(model, task, batch)[:, -1]
    top = answers.argmax(-1)
    each = {}
    for kind in ("recalled", "unused"):
        value = batch.latents[kind]
        each[f"p_{kind}"] = answers.exp().gather(1, value[:, None])[:, 0]
        each[f"chose_{kind}"] = (top == value).double()
    each["p_other"] = 1 - each["p_recalled"] - each["p_unused"]
    slots = torch.arange(1, task.n_values)
    rows = [batch.latents["source_slot"] == slot for slot in slots]
    return xr.Dataset(
        {name: ("source_slot", [float(values[mask].mean()) for mask in rows]) for name, values in each.items()},
        coords={"source_slot": slots.tolist()},
        attrs={"split": split, "n": len(batch), "sequences": "enumerated"},
    )


TARGET, RECALLED, USED = "✓ target", "↩ y of slot {}", "✕ used"
"""Marks of one character, each with its meaning."""


def marks(at: xr.Dataset, value: int) -> list[str]:
    """Words on one value at one slot of the result of `predict`."""
    found = [TARGET] if value == int(at.target) else []
    if at.repeats and value == recalled(at):
        return [*found, RECALLED.format(int(at.repeats))]
    return [*found, USED] if bool(at.used.sel(value=value)) else found


def recalled(at: xr.Dataset) -> int:
    """The y of the earlier slot with the same x: the one value that can follow."""
    return int(at.bayes.idxmax())


def exact(at: xr.Dataset) -> str:
    """The answer of the exact predictor at one slot, and its skill."""
    if at.repeats:
        return f"{recalled(at)}, by recall"
    possible = [str(int(value)) for value in at.value.values if float(at.bayes.sel(value=value)) > 0]
    if len(possible) == 1:
        return f"{possible[0]}, by elimination"
    return f"any of {', '.join(possible)}"


def blind_reader(task: PermutationLookup, batch: Batch) -> Float[Tensor, "batch d_vocab"]:
    """Probabilities of the last answer, in float64; sequences may have repeats only if the task has."""
    codes, table = _posteriors(task)
    return table[torch.searchsorted(codes, _codes(task, batch))]


@lru_cache(maxsize=4)
def _posteriors(task: PermutationLookup) -> tuple[Int[Tensor, " bag"], Float[Tensor, "bag d_vocab"]]:
    """Every bag with a last x, as a number, and the distribution of the answer."""
    batch = every_sequence(task, "all")
    assert batch.weights is not None
    codes, row = _codes(task, batch).unique(return_inverse=True)
    table = torch.zeros(len(codes), task.d_vocab, dtype=torch.double)
    table.index_put_((row, batch.targets[:, -1]), batch.weights.double(), accumulate=True)
    return codes, table / table.sum(1, keepdim=True)


def _codes(task: PermutationLookup, batch: Batch) -> Int[Tensor, " batch"]:
    """One number for the counts of the earlier tokens (at most two each) and the last x."""
    counts = torch.nn.functional.one_hot(batch.inputs[:, :-1], task.d_vocab).sum(1)
    digits = torch.cat((counts, batch.inputs[:, -1:]), 1)
    return (digits * task.d_vocab ** torch.arange(digits.shape[1])).sum(1)
