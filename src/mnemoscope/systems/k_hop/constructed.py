"""A transformer with weights set by hand that composes functions by doubling: log2 k + 1 layers of one head.

The positive control for claims about depth, and a model whose paths are known (Wang et al. 2025, theorem 1).
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import InputError
from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.k_hop.tasks import KHop


def doubling_layers(hops: int) -> int:
    """Layers that doubling takes for a number of hops: ceil(log2 h) + 1."""
    return 1 + math.ceil(math.log2(hops))


def doubling_circuit(task: KHop) -> CircuitParts:
    """Names of what `doubling` consists of: the residual blocks, and by layer `hop1`, `hop2`, `hop4`, … its heads."""
    names = [f"hop{2**layer}" for layer in range(doubling_layers(task.hops[-1]))]
    dims = dimension_blocks(place=task.n_ctx, symbol=task.n_symbols, **dict.fromkeys(names, task.n_symbols))
    return CircuitParts(dims=dims, heads={name: (layer, 0) for layer, name in enumerate(names)})


@torch.no_grad()
def doubling(task: KHop, *, reached: int | None = None, n_heads: int = 1) -> HookedTransformer:
    """Attention only, attention in both directions; right at every place after 1, 2, 4, … hops.

    - Layer 0: the place (i, x) attends to (i, p_i(x)) and copies the symbol shown there into `hop1`. That is where the
      hidden permutations are.
    - Layer l > 0, with r = 2^(l-1): the place (i, x), from where r hops lead to y, attends to the place (i + r, y) and
      copies what that has reached after r hops into `hop2r`. The function and the symbol are matched one by one, and
      where both agree the score leads by `SURE`.

    The permutations of the task must be chosen, and its numbers of hops be powers of two. Questions of more than
    `reached` hops are answered with 1/N for every symbol. All heads of a layer but the first move nothing.
    """
    if odd := [h for h in task.hops if h & (h - 1)]:
        raise InputError(f"task.hops must be powers of two for a model that doubles; got {odd[0]}")
    circuit = doubling_circuit(task)
    names = list(circuit.heads)
    model = zero_model(
        circuit,
        d_vocab=task.d_vocab,
        d_output=task.d_output,
        n_ctx=task.n_ctx,
        n_layers=len(names),
        n_heads=n_heads,
        d_head=max(task.n_ctx, task.n_functions + task.n_symbols),
        attention_dir="bidirectional",
    )
    dim = {name: directions(model, block) for name, block in circuit.dims.items()}
    model.embed.W_E[:] = dim["symbol"].T
    model.pos_embed.W_pos[:] = dim["place"].T
    place = torch.arange(task.n_ctx)
    leads = place // task.n_symbols * task.n_symbols + task.hidden().flatten()
    set_query_key(model, (0, 0), (dim["place"] @ torch.eye(task.n_ctx)[leads], SURE * dim["place"]))
    set_value_output(model, (0, 0), (dim["symbol"], dim["hop1"]))
    for layer, (before, name) in enumerate(pairwise(names), 1):
        _match(model, task, dim["place"], dim[before], layer)
        set_value_output(model, (layer, 0), (dim[before], dim[name]))
    for hops, part in zip(task.hops, task.parts.values(), strict=True):
        if reached is None or hops <= reached:
            model.unembed.W_U[:, part] = dim[f"hop{hops}"]
        else:
            model.unembed.b_U[part] = 1 / task.n_symbols
    return model


def _match(
    model: HookedTransformer,
    task: KHop,
    places: Float[Tensor, "d_model place"],
    before: Float[Tensor, "d_model symbol"],
    layer: int,
) -> None:
    """From the places of function i that have come r hops, to y, to place (i + r, y)."""
    n, k = task.n_symbols, task.n_functions
    place = torch.arange(task.n_ctx)
    functions, arguments = places @ torch.eye(k)[place // n], places @ torch.eye(n)[place % n]
    ahead = places @ torch.eye(k)[(place // n + 2 ** (layer - 1)) % k]
    set_query_key(model, (layer, 0), (ahead, SURE * functions), (before, SURE * arguments))
