"""Forward passes recorded at chosen places: what patches are taken from and go into."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Kind, Site

Place = tuple[Kind, int | None]
"""A kind of activation and its layer."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A recorded forward pass.

    Attributes:
        activations: By place, batch axis first.
        logits: At the positions that metrics read.
    """

    activations: Mapping[Place, Tensor]
    logits: Float[Tensor, "batch read d_vocab"]

    def __getitem__(self, place: Place) -> Tensor:
        return self.activations[place]


@dataclass(frozen=True, kw_only=True)
class Patched:
    """Logits under some patches.

    Attributes:
        cells: Numbers of the cells in the grid.
        first: At the positions read from this one on; before it nothing changes.
        logits: Of every cell on every prompt.
    """

    cells: Sequence[int]
    first: int
    logits: Float[Tensor, "cell prompt read d_vocab"]


@torch.no_grad()
def recorded(
    model: HookedModel, tokens: Int[Tensor, "batch pos"], places: Collection[Place], read: Int[Tensor, " read"]
) -> Run:
    """Run the model, hooks that are on it included.

    Args:
        model: Any hooked model.
        tokens: Its input.
        places: What to record.
        read: Positions whose logits are kept.

    Raises:
        InputError: The model has no such place, or its logits hold NaN.
    """
    names = {place: Site(kind=place[0], layer=place[1]).hook for place in places}
    wanted = set(names.values())
    logits, cache = model.run_with_cache(tokens, names_filter=lambda name: name in wanted)
    missing = sorted((name, kind) for (kind, _), name in names.items() if name not in cache)
    if missing:
        name, kind = missing[0]
        raise InputError(f"the model has no {kind} (hook point {name}); choose another kind of activation")
    check_numbers(logits)
    # A view would keep the logits of all positions in memory.
    found = {place: cache[name].expand(len(tokens), *cache[name].shape[1:]) for place, name in names.items()}
    return Run(activations=found, logits=logits.index_select(1, read.to(logits.device)))


def check_numbers(logits: Tensor) -> None:
    """Refuse logits that hold NaN.

    Raises:
        InputError: They do.
    """
    if logits.isnan().any():
        raise InputError("the model's logits hold NaN; check its weights, or take an earlier checkpoint")
