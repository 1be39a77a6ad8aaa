"""A transformer with weights set by hand that solves the retrieval problem along known paths.

`chain_follower` finds the pairs first, then follows the chain from the query, one layer a step. Attention in the layers
that do something is one-hot but for near coincidences of random vectors, so that its paths are known
(`chain_follower_paths`): the positive control for claims about circuits.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import ModelSpec
from mnemoscope.core import in_range
from mnemoscope.models import HookedTransformer, build
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_query_key,
    set_value_output,
)
from mnemoscope.systems.retrieval.tasks import Retrieval

SHARPNESS = 5000.0
"""Attention score by which a symbol at squared distance 2 from the one looked for stays behind it."""
_REACH, _SPACING, _NEAR = 6.0, 0.05, 0.05
_FARTHEST = 10.0
"""Half the squared distance of two symbols, per entry, that is not exceeded in practice."""


def chain_follower_circuit(n_steps: int = 3, *, d_symbol: int = 4, positions: bool = False) -> CircuitParts:
    """Names of what `chain_follower` consists of; neurons (0,) read the own symbol, (1,) the previous one."""
    found = {f"x{step}": d_symbol for step in range(1, n_steps + 1)}
    dims = dimension_blocks(symbol=d_symbol, code=d_symbol, second=1, size=1, previous=d_symbol, handicap=1, **found)
    pair = 0 if positions else 1
    heads = {"pair": (pair, 0)} | {f"hop{step}": (pair + step, 0) for step in range(1, n_steps + 1)}
    n_square = 2 * len(_knots())
    square, previous = range(d_symbol * n_square), range(d_symbol * (n_square + 3))
    neurons = {(1,): tuple(previous)} | ({} if positions else {(0,): tuple(square)})
    return CircuitParts(dims=dims, heads=heads, neurons=neurons)


def chain_follower_paths(
    n_steps: int = 3, *, reached: int | None = None, positions: bool = False
) -> tuple[tuple[int, int, int, int], ...]:
    """The attention of `chain_follower`: layer, head, place and place attended to, numbered as in `Retrieval`.

    It leads from the second symbol of every pair to the first, then from the query to the second symbol of its pair of
    step 1, 2 and so on.
    """
    reached = _reached(n_steps, reached)
    heads = chain_follower_circuit(n_steps, positions=positions).heads
    pairs = [(*heads["pair"], 2 * step, 2 * step - 1) for step in range(1, n_steps + 1)]
    return (*pairs, *((*heads[f"hop{step}"], 0, 2 * step) for step in range(1, reached + 1)))


@torch.no_grad()
def chain_follower(
    n_steps: int = 3,
    *,
    n_chains: int = 4,
    d_symbol: int = 4,
    reached: int | None = None,
    positions: bool = False,
    whole_chain: bool = True,
    n_heads: int = 1,
) -> HookedTransformer:
    """D + 2 layers of one head, which answer every query of `Retrieval` with the chain that it starts.

    - Layer 0 attends everywhere alike and moves nothing. Its MLP writes half the squared length of the own symbol into
      `size`: a sum over the entries of piecewise linear functions.
    - Layer 1, `pair`: scores of keys grow with the agreement of codes, which is largest within a pair, and, little
      against that, with the distance |x - y|^2 of the symbols, or x·y - |y|^2 / 2 downwards. So the second symbol of a
      pair attends to the first, and the first and a query to themselves. The symbol found becomes `previous`. The MLP
      writes half the squared length of that into `handicap`, and more where it is the own symbol: nobody is to look
      there.
    - Layer 1 + j, `hop j`: the score of a key with previous symbol y, for a query that has found x last, is x·y - |y|^2
      / 2, largest at y = x. Its symbol becomes `xj`, which the unembedding reads.

    Without positions and normalisation, no head of the first layer can tell the two symbols of a pair apart for sure:
    scores are linear in the key, and what differs is random. Hence the layer for lengths. With `positions` the
    positional embedding marks second symbols (`second`), the pair is found in layer 0, and all layers come one earlier:
    D + 1, for D = 1 and 2 the least that there is. For D = 3 three could do, where later pairs look for earlier ones;
    but what two chains lead to has two of those, and only the query finds its way there (`rewire`).

    It errs where two symbols nearly coincide. With N = K = 4 these are 0, 1 and 3 of 40,000 queries for D = 1, 2 and 3;
    with K = 2 they are 5 of 1,000. Places that are no queries look for symbols too, and what they find is not read. The
    order of the steps does not matter.

    D is `n_steps`, N `n_chains`, K `d_symbol`; all codes of the task have to differ. The model answers steps after
    `reached` with zeros, their mean. Without `whole_chain` it answers the last symbol only. All heads of a layer but
    the first move nothing.
    """
    reached = _reached(n_steps, reached)
    task = Retrieval(n_steps=n_steps, n_chains=n_chains, d_symbol=d_symbol, whole_chain=whole_chain)
    circuit = chain_follower_circuit(n_steps, d_symbol=d_symbol, positions=positions)
    model = _blank(task, circuit, positions, n_heads)
    dim = {name: directions(model, block) for name, block in circuit.dims.items()}
    model.embed.W_E[:] = torch.cat((dim["symbol"], dim["code"]), 1).T
    if positions:
        model.pos_embed.W_pos[1 : 2 * task.n_pairs : 2] = dim["second"].T
    else:
        _write_squares(model, 0, dim["symbol"], dim["size"])
    _find_pairs(model, task, circuit, positions)
    layer = circuit.heads["pair"][0]
    used = _write_squares(model, layer, dim["previous"], dim["handicap"])
    _write_rest(model, layer, used, dim["previous"] - dim["symbol"], dim["handicap"])
    for step in range(1, reached + 1):
        head, last = circuit.heads[f"hop{step}"], dim["symbol" if step == 1 else f"x{step - 1}"]
        set_query_key(model, head, (last, SHARPNESS * dim["previous"]))
        _subtract(model, head, SHARPNESS * dim["handicap"][:, 0])
        set_value_output(model, head, (dim["symbol"], dim[f"x{step}"]))
    model.unembed.W_U[:] = torch.cat([dim[f"x{step}"] for step in task.due], 1)
    return model


def _reached(n_steps: int, reached: int | None) -> int:
    reached = n_steps if reached is None else reached
    in_range("reached", reached, 0, n_steps)
    return reached


def _blank(task: Retrieval, circuit: CircuitParts, positions: bool, n_heads: int) -> HookedTransformer:
    """A model of the right size; all its weights are zero."""
    spec = ModelSpec(
        d_model=circuit.width,
        n_heads=n_heads,
        n_layers=1 + max(layer for layer, _ in circuit.heads.values()),
        d_head=2 * task.d_symbol + 1,
        d_mlp=max(map(len, circuit.neurons.values())),
        normalization="none",
        positions=positions,
    )
    model = build(spec, d_vocab=task.d_vocab, n_ctx=task.n_ctx, d_output=task.d_output, seed=0)
    for parameter in model.parameters():
        parameter.zero_()
    return model


def _find_pairs(model: HookedTransformer, task: Retrieval, circuit: CircuitParts, positions: bool) -> None:
    """Attend within pairs, and from a second symbol to the first: by their positions, or as to the farther one."""
    head = circuit.heads["pair"]
    symbol, code, second, size, previous = (
        directions(model, circuit.dims[name]) for name in ("symbol", "code", "second", "size", "previous")
    )
    codes = torch.cat((task.codes()[: 2 * task.n_pairs : 2], task.codes()[2 * task.n_pairs :])).double()
    gap = task.d_symbol / 2 - float((codes @ codes.T).fill_diagonal_(-math.inf).max())
    if positions:
        set_query_key(model, head, (code, 3 * SURE / gap * code), (second, -SURE * second))
    else:
        most = SHARPNESS * _FARTHEST * task.d_symbol + SURE
        set_query_key(model, head, (code, most / gap * code), (symbol, -SHARPNESS * symbol))
        _subtract(model, head, -SHARPNESS * size[:, 0])
    set_value_output(model, head, (symbol, previous))


def _subtract(model: HookedTransformer, head: tuple[int, int], read: Float[Tensor, " d_model"]) -> None:
    """Lower the score of every key by what is read there, for all queries; it takes the last entry of the head."""
    attention, number = model.blocks[head[0]].attn, head[1]
    attention.b_Q[number, -1] = model.cfg.attn_scale
    attention.W_K[number, :, -1] = -read


def _knots() -> Float[Tensor, " knot"]:
    """The points, on one side of zero, at which the slope of the approximated square changes."""
    return torch.arange(_SPACING / 2, _REACH, _SPACING)


def _write_squares(
    model: HookedTransformer, layer: int, read: Float[Tensor, "d_model d_symbol"], write: Float[Tensor, "d_model 1"]
) -> int:
    """Write half the squared length of what is read, and return the number of neurons used, the layer's first ones.

    The slope of y^2 / 2 rises by the spacing at every knot.
    """
    knots = _knots()
    for i, direction in enumerate(torch.cat((read, -read), 1).T):
        _set_neurons(model, layer, i * len(knots), direction.expand(len(knots), -1), -knots, _SPACING * write.T)
    return 2 * read.shape[1] * len(knots)


def _write_rest(
    model: HookedTransformer,
    layer: int,
    start: int,
    read: Float[Tensor, "d_model d_symbol"],
    write: Float[Tensor, "d_model 1"],
) -> None:
    """Write a handicap for every entry read that is zero, falling to nothing at some distance from it."""
    bias, slope = torch.tensor([_NEAR, 0, -_NEAR]), torch.tensor([1, -2, 1]) / _NEAR
    for i, direction in enumerate(read.T):
        outputs = SURE / SHARPNESS * slope[:, None] * write.T
        _set_neurons(model, layer, start + 3 * i, direction.expand(3, -1), bias, outputs)


def _set_neurons(
    model: HookedTransformer,
    layer: int,
    start: int,
    read: Float[Tensor, "neuron d_model"],
    bias: Float[Tensor, " neuron"],
    write: Float[Tensor, "_ d_model"],
) -> None:
    """Fill consecutive neurons of a layer: where they read, their biases, where they write."""
    chosen = slice(start, start + len(bias))
    weights = {name: model.get_parameter(f"blocks.{layer}.mlp.{name}") for name in ("W_in", "b_in", "W_out")}
    weights["W_in"][:, chosen], weights["b_in"][chosen], weights["W_out"][chosen] = read.T, bias, write
