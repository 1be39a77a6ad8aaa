"""Two causal models of the last answer in permutation lookup, compared head by head.

`SPLIT`: elimination and recall are computed apart, and recall overrides.

    eliminated  the set of values that stood as y
    recalled    the y that stood with the last x before, or none
    answer      recalled if there is one, else one of the values that are not eliminated, all equally likely

`VALUES_AND_MATCH`: one part represents what stood where, the other where to look.

    values      the y of each earlier slot
    match       the slot whose x stands again in the last slot, or none
    answer      the value at the match if there is one, else one of the values that did not occur

They give the same answers, and differ where a variable of the sequence b comes from another sequence s:

    from s      the answer on b becomes
    eliminated  b's recalled y if b has a repeat, else the value that s did not use
    values      the y of s in the slot that b repeats if b has a repeat, else the value that s did not use
    recalled    s's recalled y if s has a repeat, else the value that b did not use
    match       b's y in the slot that s repeats if s has a repeat, else the value that b did not use

`compare` gives either of them the best alignment with heads, and the MLP, that it can have (`alignment`), at the
position of the last x. It shows which of the two a network can be read as, by its heads. Neither has to fit: a network
in which both heads do some of everything matches neither.
"""

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import Subject, generator
from mnemoscope.analyses import align, random_pairs, split_halves
from mnemoscope.core import CausalModel, Values


def _seen(y: Int[Tensor, "batch slot"], n_values: int) -> Bool[Tensor, "batch token"]:
    return torch.nn.functional.one_hot(y, n_values + 1).any(1)


def _answer(
    value: Int[Tensor, " batch"], repeats: Bool[Tensor, " batch"], seen: Bool[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """A value if there is one, else one of those that were not seen; token 0 is none."""
    left = ~seen
    left[:, 0] = False
    even = left / left.sum(1, keepdim=True)
    return torch.where(repeats[:, None], torch.nn.functional.one_hot(value, seen.shape[1]).to(even), even)


def _recalled_or_left(values: Values) -> Tensor:
    return _answer(values["recalled"], values["recalled"] > 0, values["eliminated"])


def _value_at_match_or_left(values: Values) -> Tensor:
    y, slot = values["values"], values["match"]
    at_match = y.gather(1, (slot - 1).clamp(min=0)[:, None])[:, 0]
    return _answer(at_match, slot > 0, _seen(y, y.shape[1] + 1))


SPLIT = CausalModel(
    name="elimination and recall",
    variables={
        "eliminated": lambda known: _seen(known["y"][:, :-1], known["y"].shape[1]),
        "recalled": lambda known: known["recalled"],
    },
    answer=_recalled_or_left,
)
VALUES_AND_MATCH = CausalModel(
    name="values and match",
    variables={"values": lambda known: known["y"][:, :-1], "match": lambda known: known["source_slot"]},
    answer=_value_at_match_or_left,
)


def compare(
    subject: Subject, *, n: int = 1024, n_pairs: int = 2048, n_random: int = 20, split: str = "test"
) -> xr.Dataset:
    """Both causal models on one network with two heads or more, each with the alignment that suits it best.

    The seed of the subject draws `n` fresh sequences and as many repeats; half of them choose alignments, half test
    them. Each half gives `n_pairs` pairs of base and source.

    The result is that of `align`, with the four variables of both models along `variable` (`causal_model` names the
    model of each), and with `score` and `selection_score` over `causal`. `combination.along("seed", …)` joins several
    subjects.
    """
    batch = subject.task.monitor(n, split=split, generator=generator(subject.seed, "interchange", split))
    selection, test = (random_pairs(half, n_pairs, seed=subject.seed) for half in split_halves(batch))
    models = (SPLIT, VALUES_AND_MATCH)
    found = [
        align(subject.model, causal, selection=selection, test=test, n_random=n_random, seed=subject.seed)
        for causal in models
    ]
    names = [causal.name for causal in models for _ in causal.variables]
    by_variable = xr.concat([result.drop_vars(["score", "selection_score"]) for result in found], "variable")
    by_model = xr.concat([result[["score", "selection_score"]] for result in found], "causal")
    return (
        xr.merge([by_variable, by_model], combine_attrs="drop")
        .assign_coords(causal_model=("variable", names), causal=[causal.name for causal in models])
        .assign_attrs({key: value for key, value in found[0].attrs.items() if key != "causal"}, split=split)
    )
