"""Sorted lists by hand: heads that look at the next value and share the values out, and a bag that needs no look."""

from collections.abc import Sequence

import torch

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
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList

TASK = SortedList()
MARGIN = 20.0
"""Logit of the right answer above those of others."""


def _circuit(task: SortedList, n_heads: int) -> CircuitParts:
    dims = dimension_blocks(token=task.d_vocab, answer=task.n_values)
    return CircuitParts(dims=dims, heads={f"head {head}": (0, head) for head in range(n_heads)})


@torch.no_grad()
def next_value(task: SortedList, shares: Sequence[Sequence[float]]) -> HookedTransformer:
    """Every head attends from a value to the next larger one of the list, and copies its share of it.

    `shares` has a row for each head and a column for each value: with 1 the head gives the value the logit `MARGIN`,
    with 0 none. Scores fall by `SURE` with every step from the query's value upwards, and values that are not larger
    are left out, so that the sorted values so far get no attention. SEP counts as -1.
    """
    circuit = _circuit(task, len(shares))
    model = zero_model(
        circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_heads=len(shares), d_head=task.d_vocab, d_output=None
    )
    token, answer = (directions(model, circuit.dims[name]) for name in ("token", "answer"))
    model.embed.W_E[:, circuit.dims["token"]] = torch.eye(task.d_vocab)
    model.unembed.W_U[circuit.dims["answer"], : task.n_values] = torch.eye(task.n_values)
    values = torch.arange(task.d_vocab)
    step = values - torch.where(values == task.n_values, -1, values)[:, None]  # query by key
    scores = -SURE * torch.where((step > 0) & (values < task.n_values), step, task.d_vocab).float()
    for head, share in zip(circuit.heads.values(), shares, strict=True):
        set_query_key(model, head, (token @ scores, token))
        set_value_output(model, head, (token[:, : task.n_values], MARGIN * answer * torch.tensor(share)))
    return model


def by_owner(task: SortedList, owner: Sequence[int]) -> HookedTransformer:
    """`next_value` of two heads, each of which copies the values that `owner` gives it and no other."""
    return next_value(task, [[float(one == head) for one in owner] for head in range(2)])


@torch.no_grad()
def bag(task: SortedList) -> HookedTransformer:
    """Solves the task without a look at the next value: one head adds up the list, the unembedding picks from it.

    The head attends to all positions alike and writes which values are there. The token itself rules out the values
    that are not larger, and the bias of the unembedding prefers small ones.
    """
    circuit = _circuit(task, 1)
    model = zero_model(circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_heads=2, d_head=task.d_vocab)
    token, answer = (directions(model, circuit.dims[name]) for name in ("token", "answer"))
    model.embed.W_E[:, circuit.dims["token"]] = torch.eye(task.d_vocab)
    set_value_output(model, (0, 0), (token[:, : task.n_values], answer))
    values = torch.arange(task.n_values)
    present = 2 * task.n_ctx * MARGIN * task.n_values  # that of a single position outweighs every difference in size
    model.unembed.W_U[circuit.dims["answer"], : task.n_values] = present * torch.eye(task.n_values)
    not_larger = (values <= values[:, None]).float()
    model.unembed.W_U[circuit.dims["token"]][: task.n_values, : task.n_values] = -2 * present * not_larger
    model.unembed.b_U[: task.n_values] = -MARGIN * values
    model.unembed.b_U[task.n_values] = -2 * present
    return model


def range_model() -> HookedTransformer:
    """One head for the values from 20 to 34, the other for the rest."""
    return by_owner(TASK, [int(20 <= value < 35) for value in TASK.answers])


def patchwork_model() -> HookedTransformer:
    """Every other value for one head, the rest for the other."""
    return by_owner(TASK, [value % 2 for value in TASK.answers])


def single_model() -> HookedTransformer:
    """One head for all values, the other for none."""
    return by_owner(TASK, [0] * TASK.n_values)


def graded_model() -> HookedTransformer:
    """Both heads copy half of every value."""
    return next_value(TASK, [[0.5] * TASK.n_values] * 2)


def bag_model() -> HookedTransformer:
    """`bag` at the published size of the task."""
    return bag(TASK)
