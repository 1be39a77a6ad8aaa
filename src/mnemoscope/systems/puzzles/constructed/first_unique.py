"""The first unique letter by hand: repeated letters are suppressed, or letters are counted.

All have two layers of three heads and no MLP, and are exact.
"""

from typing import Literal

import torch

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
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique

Sharing = Literal["own", "single", "graded"]
Values = Literal["both", "token", "copied"]
_HEADS = 3
_FIRST, _SUPPRESS = 6000.0, 30000.0
"""Logits that all letters share by their place, and that all repetitions take away."""
_FREE = 25.0
"""Logit of `?`, below that of every letter that stood once."""
_COUNTS = 5e4
"""Sharpness of the attention to letters that stood once."""


def suppressor_circuit(task: FirstUnique) -> CircuitParts:
    """Names of what `suppressor` consists of."""
    dims = dimension_blocks(
        token=task.d_vocab, position=task.n_ctx, repeated=1, copied=task.d_vocab, answer=task.d_vocab
    )
    heads = {"duplicates": (0, 0), "first": (0, 1), **{f"suppress{head}": (1, head) for head in range(_HEADS)}}
    return CircuitParts(dims=dims, heads=heads)


@torch.no_grad()
def suppressor(task: FirstUnique, *, sharing: Sharing = "own", values: Values = "both") -> HookedTransformer:
    """Duplicate-token heads make heads of layer 1 suppress repeated letters, through their keys and their values.

    - L0H0, a duplicate-token head, attends from a letter to its earlier places, and to START where there are none. It
      writes on `repeated` that there are some, and copies the letter found there into `copied`.
    - L0H1 attends to the letters so far, more to earlier ones by equal steps, and raises each of them in `answer`.
    - L1H0 to L1H2 attend to repeated letters, to START where there are none, and lower the letter there, half by its
      token and half by what is `copied`, or by one of the two alone (`values`). With `sharing` "own" each has its own
      letters (head 0 a, d, g, …), with "single" one head has all, with "graded" each has a third of every letter.

    A letter that stood once keeps what its place gives it, a repeated one loses more than that, and `?` lies between.
    """
    circuit = suppressor_circuit(task)
    model = zero_model(
        circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_layers=2, n_heads=_HEADS, d_head=task.d_vocab + task.n_ctx
    )
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(task.d_vocab)
    model.unembed.b_U[task.none] = _FREE
    token, position, repeated, copied, answer = (directions(model, block) for block in circuit.dims.values())
    every, start, letters = position.sum(1, keepdim=True), position[:, :1], slice(task.n_letters)

    set_query_key(
        model, circuit.heads["duplicates"], (token[:, letters], 4 * SURE * token[:, letters]),
        (position, -8 * SURE * position), (every, 2 * SURE * start),
    )  # fmt: skip
    set_value_output(
        model, circuit.heads["duplicates"], (token[:, letters].sum(1, keepdim=True), repeated),
        (token[:, letters], copied[:, letters]),
    )  # fmt: skip

    steps = (1.5 * task.n_ctx - torch.arange(task.n_ctx)).log()[:, None]
    set_query_key(model, circuit.heads["first"], (every, position @ steps))
    set_value_output(model, circuit.heads["first"], (token[:, letters], _FIRST * answer[:, letters]))

    for head in range(_HEADS):
        name = circuit.heads[f"suppress{head}"]
        owned = torch.tensor([_owned(letter, head, sharing) for letter in range(task.n_letters)])
        set_query_key(model, name, (every, 4 * SURE * repeated + 2 * SURE * start))
        read = {"both": (copied + token) / 2, "token": token, "copied": copied}[values][:, letters]
        set_value_output(model, name, (read, -_SUPPRESS * answer[:, letters] * owned))
    return model


def _owned(letter: int, head: int, sharing: Sharing) -> float:
    return {"own": float(letter % _HEADS == head), "single": float(head == 0), "graded": 1 / _HEADS}[sharing]


def counter_circuit(task: FirstUnique) -> CircuitParts:
    """Names of what `counter` consists of."""
    dims = dimension_blocks(token=task.d_vocab, position=task.n_ctx, count=task.d_vocab, answer=task.d_vocab)
    return CircuitParts(dims=dims, heads={"count": (0, 0), "choose": (1, 0)})


@torch.no_grad()
def counter(task: FirstUnique) -> HookedTransformer:
    """One head counts and one head chooses: no head looks for duplicates, and nothing is suppressed.

    - L0H0 attends to all places alike and writes how often each token stood into `count`.
    - L1H0 attends, by its query's counts, to the first place whose letter stood once, and to START where there is none:
      the score of a key falls with the count of its token (that of START counts one and a half), and a little with its
      place. It copies the token found there to `answer`.
    - All other heads have zero weights.
    """
    circuit = counter_circuit(task)
    model = zero_model(
        circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_layers=2, n_heads=_HEADS, d_head=task.d_vocab + 1
    )
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(task.d_vocab)
    token, position, count, answer = (directions(model, block) for block in circuit.dims.values())
    every, number = position.sum(1, keepdim=True), torch.arange(task.n_ctx).float()[:, None]
    set_value_output(model, circuit.heads["count"], (token, count))
    weight = torch.ones(task.d_vocab)
    weight[task.none] = 1.5
    set_query_key(
        model, circuit.heads["choose"], (count, -_COUNTS * weight * token), (every, -SURE * position @ number)
    )
    set_value_output(model, circuit.heads["choose"], (token, SURE * answer))
    return model
