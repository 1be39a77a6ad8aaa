"""A transformer with weights set by hand that composes functions by doubling: log2 k + 1 layers of one head.

The positive control for claims about depth, and a model whose paths are known (Wang et al. 2025, theorem 1).
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from mnemoscope import InputError
from mnemoscope.models.constructed import SURE, Circuit, attend, blank, blocks, directions, move
from mnemoscope.systems.k_hop.tasks import KHop


def doubling_layers(hops: int) -> int:
    """Layers that doubling takes for a number of hops: ceil(log2 h) + 1."""
    return 1 + math.ceil(math.log2(hops))


def doubling_circuit(task: KHop) -> Circuit:
    """Names of what `doubling` consists of: the residual blocks, and by layer `hop1`, `hop2`, `hop4`, … its heads."""
    names = [f"hop{2**layer}" for layer in range(doubling_layers(task.hops[-1]))]
    n_queries = task.d_vocab - task.n_symbols
    dims = blocks(place=task.n_shown, query=n_queries, symbol=task.n_symbols, **dict.fromkeys(names, task.n_symbols))
    return Circuit(dims=dims, heads={name: (layer, 0) for layer, name in enumerate(names)})


@torch.no_grad()
def doubling(task: KHop, *, reached: int | None = None, margin: float = 20.0) -> HookedTransformer:
    """Attention only, one head a layer, attention in both directions; right for every query of 1, 2, 4, … hops.

    - Residual stream: `place`, one-hot, of the positions that show functions; `query`, one-hot, of query tokens;
      `symbol`, what a position shows; `hop1`, `hop2`, `hop4`, …: the symbol that is reached after so many hops, the
      last of them read by the unembedding.
    - Layer 0: a query (i, x), like the place (i, x), attends to the place (i, p_i(x)) and copies its symbol into
      `hop1`. That is where the hidden permutations are.
    - Layer l > 0, with r = 2^(l-1): who starts at function i and has reached y after r hops attends to the place
      (i + r, y) and copies what that has reached after r hops into `hop2r`. The function and the symbol are matched one
      by one, and where both agree the score leads by `SURE`. Queries of at most r hops attend to themselves, so that
      their answer moves on.

    All positions compose, not only the queries: a query of 4 hops needs the 2 hops of the place that it attends to.

    Args:
        task: With its hidden permutations.
        reached: Hops up to which it composes; a query of more is left with the result of so many. None: all.
        margin: Logit of the answer.

    Raises:
        InputError: Queries ask for a number of hops that is no power of two, or the permutations are not chosen.
    """
    if odd := [h for h in task.hops if h & (h - 1)]:
        raise InputError(f"task.hops must be powers of two for a model that doubles; got {odd[0]}")
    circuit = doubling_circuit(task)
    names = list(circuit.heads)
    model = blank(
        circuit,
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        n_layers=len(names),
        n_heads=1,
        d_head=max(task.n_shown, task.n_functions + task.n_symbols + task.d_vocab - task.n_symbols),
        attention_dir="bidirectional",
    )
    dim = {name: directions(model, block) for name, block in circuit.dims.items()}
    model.embed.W_E[:] = torch.cat((dim["symbol"], dim["query"]), 1).T
    model.pos_embed.W_pos[: task.n_shown] = dim["place"].T
    _first_hop(model, task, dim)
    for layer, (before, name) in enumerate(pairwise(names), 1):
        hops = 2 ** (layer - 1)
        goes_on = reached is None or hops < reached
        _double(model, task, dim, layer=layer, before=before, stop=hops if goes_on else task.n_functions)
        move(model, (layer, 0), (dim[before], dim[name]))
    model.unembed.W_U[:, : task.n_symbols] = margin * dim[names[-1]]
    return model


def _first_hop(model: HookedTransformer, task: KHop, dim: dict[str, Float[Tensor, "d_model width"]]) -> None:
    """From every place and query to the place that the hidden permutation names."""
    function, symbol = torch.arange(task.n_shown) // task.n_symbols, torch.arange(task.n_shown) % task.n_symbols
    leads = function * task.n_symbols + task.hidden()[function, symbol]
    _, start, argument = task.asked(torch.arange(task.n_symbols, task.d_vocab))
    wanted = torch.zeros(model.cfg.d_model, task.n_shown)
    wanted += dim["place"] @ torch.eye(task.n_shown)[leads]
    wanted += dim["query"] @ torch.eye(task.n_shown)[leads[start * task.n_symbols + argument]]
    attend(model, (0, 0), (wanted, SURE * dim["place"]))
    move(model, (0, 0), (dim["symbol"], dim["hop1"]))


def _double(
    model: HookedTransformer,
    task: KHop,
    dim: dict[str, Float[Tensor, "d_model width"]],
    *,
    layer: int,
    before: str,
    stop: int,
) -> None:
    """From who has come r hops from function i to function i + r; from queries of at most `stop` hops to themselves."""
    n, k, r = task.n_symbols, task.n_functions, 2 ** (layer - 1)
    place = torch.arange(task.n_shown)
    hops, start, _ = task.asked(torch.arange(n, task.d_vocab))
    ahead = torch.roll(torch.eye(k), -r, 0)  # row i: the function r further
    if not task.cyclic:
        ahead[max(0, k - r) :] = 0
    going = (hops > stop)[:, None]
    wanted = dim["place"] @ ahead[place // n] + dim["query"] @ (ahead[start] * going)
    functions, arguments = dim["place"] @ torch.eye(k)[place // n], dim["place"] @ torch.eye(n)[place % n]
    to_itself = (dim["query"] * ~going[:, 0], 3 * SURE * dim["query"])
    attend(model, (layer, 0), (wanted, SURE * functions), (dim[before], SURE * arguments), to_itself)
