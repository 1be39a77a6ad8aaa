"""Models with weights set by hand: induction by heads that share the work, and a copier of both labels.

They are the controls of the claims. Both have two layers, attention only, rotary positions and no normalisation. Rotary
positions turn queries and keys by an angle that grows with the position, pair of entries by pair. A head of the first
layer finds the token before its query with the fastest pair alone: its query and key are constants whose product is
largest at a distance of one. Classes are compared in pairs that are slow enough to stay as they are over five tokens.
"""

import math

import torch

from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    set_value_output,
    zero_model,
)
from mnemoscope.systems.induction_formation.tasks import FewShot

MARGIN = 20.0
"""Logit of the right label."""
_SLOW = 0.4
"""Share of the pairs, the fastest ones, that turn too fast to compare classes with: the others turn by 10^-1.6 or less
a position."""


def _model(task: FewShot, n_heads: int) -> tuple[HookedTransformer, dict[str, torch.Tensor]]:
    """A model of zeros that embeds tokens one-hot and reads labels from a block of their own."""
    dims = dimension_blocks(token=task.d_vocab, previous=task.d_vocab, answer=task.n_labels)
    half = max(task.d_vocab, math.ceil(task.n_classes / (1 - _SLOW)) + 1)
    model = zero_model(
        CircuitParts(dims=dims, heads={}), d_vocab=task.d_vocab, n_ctx=task.n_ctx, d_vocab_out=task.n_labels,
        n_layers=2, n_heads=n_heads, d_head=2 * half, position_kind="rotary",
    )  # fmt: skip
    dim = {name: directions(model, block) for name, block in dims.items()}
    model.embed.W_E[:] = dim["token"].T
    model.unembed.W_U[:] = dim["answer"]
    return model, dim


def _look_back(model: HookedTransformer, head: int) -> None:
    """Attend to the token before: constant queries and keys in the fastest pair, which turns by one a position."""
    attention, half = model.blocks[0].attn, model.cfg.d_head // 2
    attention.b_K[head, 0] = 1
    attention.b_Q[head, 0] = 4 * SURE * model.cfg.attn_scale * math.cos(1)
    attention.b_Q[head, half] = -4 * SURE * model.cfg.attn_scale * math.sin(1)


@torch.no_grad()
def induction(task: FewShot, *, n_previous: int = 1, n_induction: int = 1, n_heads: int = 8) -> HookedTransformer:
    """Find the label whose exemplar is the query's, and say it.

    - The first `n_previous` heads of layer 0 attend to the token before and write it into `previous`, each an equal
      share of it.
    - The first `n_induction` heads of layer 1 compare the query's class with `previous` of every key, less the key's
      own class: so that the first exemplar, before which there is nothing, is not taken for its label. Each copies the
      label that it finds into `answer`, an equal share of the margin. They read all heads of layer 0 alike.
    """
    model, dim = _model(task, n_heads)
    label, exemplar = dim["token"][:, : task.n_labels], dim["token"][:, task.n_labels :]
    for head in range(n_previous):
        _look_back(model, head)
        set_value_output(model, (0, head), (dim["token"], dim["previous"] / n_previous))
    attention, half = model.blocks[1].attn, model.cfg.d_head // 2
    slow = slice(half - task.n_classes, half)
    for head in range(n_induction):
        attention.W_Q[head][:, slow] = SURE * model.cfg.attn_scale * exemplar
        attention.W_K[head][:, slow] = dim["previous"][:, task.n_labels :] - exemplar
        set_value_output(model, (1, head), (label, MARGIN / n_induction * dim["answer"]))
    return model


@torch.no_grad()
def copier(task: FewShot, *, n_heads: int = 8) -> HookedTransformer:
    """Say both labels of the sequence alike: a head of layer 1 attends to labels, whatever stands before them."""
    model, dim = _model(task, n_heads)
    label = dim["token"][:, : task.n_labels]
    attention, half = model.blocks[1].attn, model.cfg.d_head // 2
    attention.b_Q[0, half - 1] = SURE * model.cfg.attn_scale
    attention.W_K[0][:, half - 1] = label.sum(1)
    set_value_output(model, (1, 0), (label, 2 * MARGIN * dim["answer"]))
    return model
