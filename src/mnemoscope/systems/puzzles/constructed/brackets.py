"""Hand-set models that tell balanced brackets: the published circuit, divisions of its last layer, and other ways.

Three layers of two heads with an MLP, attention in both directions, no normalisation, padding masked.

- Layer 0: head 0 attends from every place evenly to the places from there to END, and reads `)` as 1 and `(` as -1: it
  writes the elevation over the number of places. Four neurons make yes-or-no of it: `wrong` (not zero) and `negative`.
- Layer 1: head 0 attends from position 1, where the elevation is the total, to a place where `negative` is 1, else to
  START, and copies it.
- Layer 2: both heads attend from START to position 1 and add up what they find there, each with weights of its own.
  Above one half the brackets are unbalanced.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_embeddings,
    set_query_key,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.puzzles.tasks.brackets import CLOSE, END, OPEN, PAD, Brackets

MARGIN = 10.0
"""Logit difference of the classes for evidence of 1 or 0."""
Weights = tuple[float, float]
"""Of a wrong total and of a negative elevation."""


@dataclass(frozen=True, kw_only=True)
class BracketCircuit:
    """The choices that distinguish the models.

    Attributes:
        weights: Evidence that each head of the last layer makes of either fault.
        direct: True: the answer also reads `wrong` at START, which sees all brackets as position 1 does.
        prefix: True: head 0 looks to the left, so that END has the total.
    """

    weights: tuple[Weights, Weights] = ((1.0, 0.0), (0.0, 1.0))
    direct: bool = False
    prefix: bool = False


DOUBLE = BracketCircuit()
"""Either head of the last layer has one fault."""
SINGLE = BracketCircuit(weights=((0.4, 1.0), (0.4, 0.0)))
"""A wrong total needs both heads, a negative elevation the first alone."""
BOTH = BracketCircuit(weights=((0.4, 0.4), (0.4, 0.4)))
"""Both faults need both heads."""
REDUNDANT = BracketCircuit(weights=((1.0, 1.0), (1.0, 1.0)))
"""Either head is enough for both faults."""
DIRECT = BracketCircuit(weights=((0.0, 1.0), (0.0, 0.0)), direct=True)
"""START sees a wrong total by itself; the last layer has a negative elevation only."""
PREFIX = BracketCircuit(prefix=True)
"""The elevation is read from the left."""


def bracket_circuit_parts(task: Brackets) -> CircuitParts:
    """Names of what `bracket_counter` consists of; neurons by the sign of the elevation that they see."""
    dims = dimension_blocks(
        token=task.d_vocab,
        position=task.n_ctx,
        elevation=1,
        wrong=1,
        negative=1,
        any_negative=1,
        evidence=1,
    )
    heads = {"average": (0, 0), "gather": (1, 0), "read0": (2, 0), "read1": (2, 1)}
    return CircuitParts(dims=dims, heads=heads, neurons={(1,): (0, 1), (-1,): (2, 3)})


@torch.no_grad()
def bracket_counter(circuit: BracketCircuit = DOUBLE, task: Brackets | None = None) -> HookedTransformer:
    """The model of the module's docstring, right at every sequence."""
    task = Brackets() if task is None else task
    parts = bracket_circuit_parts(task)
    model = zero_model(
        parts,
        d_vocab=task.d_vocab,
        d_vocab_out=len(task.classes),
        n_ctx=task.n_ctx,
        n_layers=3,
        d_head=task.n_ctx + 2,
        attention_dir="bidirectional",
        masked=PAD,
    )
    set_embeddings(model, parts)
    dim = {name: directions(model, block) for name, block in parts.dims.items()}
    evidence = dim["evidence"] + dim["wrong"] if circuit.direct else dim["evidence"]
    model.unembed.W_U[:] = MARGIN * evidence @ torch.tensor([[1.0, -1.0]])
    model.unembed.b_U[:] = MARGIN / 2 * torch.tensor([-1.0, 1.0])
    _average(model, dim, prefix=circuit.prefix)
    _decide(model, dim)
    start, total = dim["position"][:, :1], dim["token"][:, END : END + 1] if circuit.prefix else dim["position"][:, 1:2]
    set_query_key(model, (1, 0), (total, SURE * (2 * dim["negative"] + start)))
    set_value_output(model, (1, 0), (dim["negative"], dim["any_negative"]))
    for head, (of_total, of_negative) in enumerate(circuit.weights):
        read = of_total * dim["wrong"] + of_negative * dim["any_negative"]
        set_query_key(model, (2, head), (start, SURE * total))
        set_value_output(model, (2, head), (read, dim["evidence"]))
    return model


def _average(model: HookedTransformer, dim: dict[str, Float[Tensor, "d_model width"]], *, prefix: bool) -> None:
    """Head 0 of layer 0: the mean of `)` minus `(` from each place on, or of `(` minus `)` up to it."""
    seen = torch.ones(model.cfg.n_ctx, model.cfg.n_ctx).triu()  # by query and key
    seen = seen.T if prefix else seen
    sign = dim["token"][:, CLOSE : CLOSE + 1] - dim["token"][:, OPEN : OPEN + 1]
    set_query_key(model, (0, 0), (dim["position"] @ seen, SURE * dim["position"]))
    set_value_output(model, (0, 0), (-sign if prefix else sign, dim["elevation"]))


def _decide(model: HookedTransformer, dim: dict[str, Float[Tensor, "d_model width"]]) -> None:
    """The MLP of layer 0: whether the elevation is above zero, and below; its least size is one over the context."""
    mlp, slope = model.blocks[0].mlp, 2.0 * model.cfg.n_ctx
    signs = torch.tensor([1.0, 1.0, -1.0, -1.0])
    mlp.W_in[:] = slope * dim["elevation"] @ signs[None]
    model.get_parameter("blocks.0.mlp.b_in").copy_(torch.tensor([0.0, -1.0, 0.0, -1.0]))
    step = torch.tensor([1.0, -1.0, 1.0, -1.0])
    mlp.W_out[:] = (dim["wrong"] @ step[None] + dim["negative"] @ (step * (signs < 0))[None]).T
