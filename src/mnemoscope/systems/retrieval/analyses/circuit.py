"""The circuit of a model that follows chains: which head fetches what, from which place to which.

For every head the simplest of these is taken that holds the loss: attention to all alike, to itself, to the previous
position, to an earlier occurrence of the same symbol, and to places of the own chain, which are read off the head: from
each place the one that gets at least half of its attention. All heads are replaced together, and paths are dropped as
long as none is needed (`mnemoscope.analyses.find_circuit`).
"""

from functools import reduce
from itertools import combinations
from typing import Any, Literal

import numpy as np
import xarray as xr

from mnemoscope import Batch, HookedModel
from mnemoscope.analyses import Circuit, find_circuit
from mnemoscope.core import Mechanism, with_fallback
from mnemoscope.core.patterns import identity, previous, same_value, uniform
from mnemoscope.systems.retrieval.analyses.chain_attention import (
    between_places,
    chain_attention,
    n_places,
    strongest,
    within_chain,
)

Later = Literal["set", "learned"]
LEVEL = 0.5
"""Share of attention from which a place counts as attended to, as in the source."""
MAX_SUBSETS = 4
"""Paths of a head of which every set is tried; of more, each one and all together."""
SIMPLE = (uniform(), identity(), previous(), same_value("symbol"))
"""Mechanisms for every head, from the simplest on."""


def chain_circuit(model: HookedModel, batch: Batch, **options: Any) -> Circuit:
    """The attention circuit of a model on sequences of the retrieval problem.

    Half of the sequences serve to choose mechanisms, the others to test them. Options are those of
    `mnemoscope.analyses.find_circuit`. Raises InputError where the model does not fit the batch.
    """
    by_layer: dict[int, xr.DataArray] = {}

    def own(model: HookedModel, head: tuple[int, int], batch: Batch) -> list[Mechanism]:
        layer, number = head
        if layer not in by_layer:
            by_layer[layer] = chain_attention(model, batch, layers=[layer]).sel(layer=layer)
        return read_off(by_layer[layer].sel(head=number))

    return find_circuit(model, batch, SIMPLE, own=own, **options)


def read_off(attention: xr.DataArray) -> list[Mechanism]:
    """Mechanisms from the attention of one head, over (place, to): single paths, and sets of them."""
    paths = [within_chain(*path) for path in strongest(attention, LEVEL)]
    sizes = range(1, len(paths) + 1) if len(paths) <= MAX_SUBSETS else sorted({1, len(paths)})
    return [reduce(with_fallback, some) for size in sizes for some in combinations(paths, size)]


def path_table(circuit: Circuit, model: HookedModel, batch: Batch, *, later: Later = "set") -> xr.Dataset:
    """The paths of a circuit from `chain_circuit`, as places of a chain that heads connect.

    The batch says what mechanisms such as `previous token` connect. When a path is taken out, later heads attend as
    their mechanisms say (`set`), or as they have learned to (`learned`).

    Returns:
        Over (layer, head, place, to, skill) `rise`, of the squared error, without the mechanism that connects the
        places, the others in place; NaN where no needed mechanism does.
    """
    n, cfg = n_places(batch), model.cfg
    skills = circuit.joint.skill.values.tolist()
    rise = np.full((cfg.n_layers, cfg.n_heads, n, n, len(skills)), np.nan)
    table = circuit.paths
    for number in range(0 if table is None else table.sizes["path"]):
        assert table is not None
        at = table.isel(path=number).sel(later=later)
        head = (int(at.layer), int(at["head"]))
        mechanism = circuit.mechanisms[head]
        (part,) = [part for part in mechanism.parts or (mechanism,) if part.name == at.part.item()]
        connected = between_places(part.pattern(batch)[:, None], batch)[0].numpy() >= LEVEL
        np.fill_diagonal(connected, False)
        rise[head][connected] = at.rise.sel(skill=skills).values
    dims = ("layer", "head", "place", "to", "skill")
    labels = (range(cfg.n_layers), range(cfg.n_heads), range(n), range(n), skills)
    coords = {name: list(each) for name, each in zip(dims, labels, strict=True)}
    return xr.Dataset({"rise": (dims, rise)}, coords=coords, attrs={"unit": "squared error", "n": len(batch)})
