"""Activation patching of every cell of a grid, in both directions, with several metrics per forward pass.

Prompts and cells are cut into chunks that stay within a byte budget. The fast way (`through_stream`) serves causal
models of the engine that carry no hooks. Every other model is patched through its hooks (`by_hooks`). Both give the
same numbers.
"""

from typing import Literal, get_args

import torch

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.engine.architecture import represented
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.patching.by_hooks import hooks_plan
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.measuring import Plan, Question, SweepResult, measured
from mnemoscope.interventions.patching.through_stream import stream_plan
from mnemoscope.interventions.recordings import Run

Method = Literal["auto", "stream", "hooks"]


def sweep(question: Question, grid: Grid, *, method: Method = "auto") -> SweepResult:
    """Patch every cell of a grid.

    Args:
        question: What is measured.
        grid: The cells.
        method: `stream` or `hooks` to insist on one.

    Raises:
        InputError: A metric measures no prediction, the budget is too small, the model's logits hold NaN, or the
            model cannot be patched that way.
    """
    return measured(question, len(grid.cells), plan(question, grid, method))


@torch.no_grad()
def plan(question: Question, grid: Grid, method: Method) -> Plan[Run]:
    """Choose the fast way where the model allows it, and the size of chunks.

    Raises:
        InputError: The model cannot be patched the way that is insisted on, or the budget is too small.
    """
    one_of("method", method, get_args(Method))
    weights = "asked for" if method == "hooks" else represented(question.model, question.n_pos)
    if isinstance(weights, Transformer) and grid.kind == "pre" and weights.is_gated:
        weights = "in a gated MLP the effect of pre depends on what it gates"
    if isinstance(weights, Transformer):
        return stream_plan(question, weights, grid)
    if method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' for this model, because {weights}; got 'stream'")
    return hooks_plan(question, grid, reason=weights)
