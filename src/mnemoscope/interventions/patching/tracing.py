"""Forward passes that can be differentiated at hook points, hooks that are on the model included."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Inputs
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.engine.architecture import transformer_without_hooks
from mnemoscope.engine.block import Read
from mnemoscope.engine.budget import prompts_at_once, worth_a_pass
from mnemoscope.engine.changes import Changes
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.patching.measuring import Question, Reader
from mnemoscope.interventions.reading import pick_columns, unembedding
from mnemoscope.interventions.recordings import RecordedRun

CHUNK_BYTES = 2**26
"""Bytes of one traced forward pass on a CPU: larger ones gain nothing, unless the weights are larger."""


def traced(
    model: HookedModel,
    tokens: Inputs,
    names: Collection[str],
    read: Int[Tensor, " read"],
    *,
    starts: Mapping[str, Tensor] | None = None,
    weights: Transformer | None = None,
    where_read: bool = False,
) -> RecordedRun:
    """Run a model, hooks that are on it included, and keep what is needed to differentiate.

    The engine runs it where it can, equal to 1e-5: its graph holds activations only, and no copies of weights.
    Activations at `names` are kept; at the hook points of `starts` the run goes on with the given ones. With
    `where_read` the engine may leave out what nobody reads: after the heads of the last layer it then keeps activations
    at the positions `read` alone. None for `weights`: the engine's transformer is looked for.
    """
    starts, found = starts or {}, {}
    if missing := sorted({*names, *starts} - {*model.hook_dict}):
        raise InputError(f"the model has no hook point {missing[0]}; choose another kind of activation")

    def keep(activation: Tensor, hook: Any, *, name: str) -> Tensor:
        start = starts.get(name, activation)
        activation = start if start.shape == activation.shape else start[:, read.to(start.device)]
        if not activation.requires_grad:
            activation = activation.detach().requires_grad_()
        # one row may stand for all
        found[name] = activation.expand(len(tokens), *activation.shape[1:])
        return found[name]

    points = {*names, *starts}
    weights = transformer_without_hooks(model, points) if weights is None else weights
    if weights is not None:
        device, changes = weights.b_u.device, {name: partial(keep, hook=None, name=name) for name in points}
        with torch.enable_grad():
            logits = weights(tokens.to(device), Read(columns=read.to(device)), Changes(changes, where_read=where_read))
        return RecordedRun(activations=found, logits=logits)
    hooks = [(name, partial(keep, name=name)) for name in points]
    with torch.enable_grad(), unembedding(model, pick_columns(read)) as picked:
        logits = picked(model.run_with_hooks(tokens, fwd_hooks=hooks))
    return RecordedRun(activations=found, logits=logits)


def sums(reader: Reader, run: RecordedRun) -> Iterator[Float[Tensor, ""]]:
    """Every metric, which needs a gradient, summed over prompts: each prompt's activations get their own gradient."""
    for metric in reader.metrics:
        with torch.enable_grad():
            values = replace(reader, metrics=[metric]).values(run.logits[None])[0, 0]
            total = (torch.where(reader.scored, values, 0).sum(-1) / reader.scored.sum(-1)).sum()
        if not total.requires_grad:
            raise InputError(f"metric {metric.name} has no gradient; take logit_diff, log_prob or another smooth one")
        yield total


def check_gradient(estimate: Tensor, metric: str) -> None:
    """Refuse estimates that hold NaN."""
    if estimate.isnan().any():
        raise InputError(f"the gradient of metric {metric} is NaN on these prompts; change the metric, or patch them")


def gradients(value: Float[Tensor, ""], ends: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a sum with respect to activations, zero for those that it does not depend on; the graph is kept."""
    return torch.autograd.grad(value, ends, retain_graph=True, materialize_grads=True)


def prompts_traced(question: Question, *, n_runs: int, kept: int = 0, readers: int = 0, by_engine: bool = False) -> int:
    """The number of prompts to trace at once, from an upper estimate of their memory.

    `n_runs` traced runs of a prompt are in memory together. `kept` are further numbers for a position as long as its
    prompt is at work; `readers` are those for a position and head while gradients are pulled back. `by_engine` says
    that the engine is certain to trace, which keeps less and copies no weights. InputError where there is no room for
    one prompt.
    """
    cfg, n_pos, sizes = question.model.cfg, question.n_pos, question.sizes
    heads, d_mlp = cfg.n_heads * cfg.d_head, 0 if cfg.attn_only else cfg.d_mlp
    widths = 12 * cfg.d_model + 10 * heads + 5 * d_mlp if by_engine else 24 * cfg.d_model + 12 * heads + 6 * d_mlp
    graph = cfg.n_layers * (widths + 6 * cfg.n_heads * n_pos)
    traces = n_runs * (sizes.hooked(everywhere=False) + sizes.float_bytes * n_pos * graph)
    at_work = traces + sizes.float_bytes * n_pos * readers * cfg.n_heads
    n, target = len(question.pairs), n_runs * worth_a_pass(question.model, CHUNK_BYTES)
    room = question.max_bytes - (0 if by_engine else sizes.traced_weights())
    kept *= sizes.float_bytes * n_pos
    return prompts_at_once(n, at_work=at_work, kept=kept, room=room, target=target)
