"""Gradients of a metric with respect to what every reader of a model reads.

A forward pass is traced at hook points. The gradient at q, k, v and at the output of an MLP is then pulled back to
the residual stream through that reader alone: by automatic differentiation, so that normalisations, rotations and
hooks on the model count as they are. A head gets a gradient of its own through each of q, k and v.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.edge import LOGITS, THROUGH
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.interventions.edges.graph import Input
from mnemoscope.interventions.patching.measuring import Question, Reader
from mnemoscope.interventions.patching.memory import Sizes, prompts_at_once

CHUNK_BYTES = 2**26
"""Of one traced forward pass on a CPU: larger ones gain nothing."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A forward pass that can be differentiated.

    Attributes:
        activations: By hook point, batch axis first.
        logits: At the positions that metrics read.
    """

    activations: Mapping[str, Tensor]
    logits: Float[Tensor, "prompt read d_vocab"]

    def __getitem__(self, name: str) -> Tensor:
        return self.activations[name]


def traced(
    model: HookedModel,
    tokens: Int[Tensor, "prompt pos"],
    names: Collection[str],
    read: Int[Tensor, " read"],
    *,
    starts: Mapping[str, Tensor] | None = None,
) -> Traced:
    """Run a model, hooks that are on it included, and keep what is needed to differentiate.

    Args:
        model: Any hooked model.
        tokens: Its input.
        names: Hook points to keep.
        read: Positions whose logits are wanted.
        starts: Activations to go on with at some of the hook points in place of the model's own.

    Raises:
        InputError: The model has no such hook point.
    """
    starts, found = starts or {}, {}
    if missing := sorted({*names, *starts} - {*model.hook_dict}):
        raise InputError(f"the model has no hook point {missing[0]}; choose another kind of activation")

    def keep(activation: Tensor, hook: Any, *, name: str) -> Tensor:
        activation = starts.get(name, activation)
        if not activation.requires_grad:
            activation = activation.detach().requires_grad_()
        # one row may stand for all
        found[name] = activation.expand(len(tokens), *activation.shape[1:])
        return found[name]

    with torch.enable_grad():
        hooks = [(name, partial(keep, name=name)) for name in {*names, *starts}]
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        logits = logits.index_select(1, read.to(logits.device))
    return Traced(activations=found, logits=logits)


def sums(reader: Reader, run: Traced) -> Iterator[Float[Tensor, ""]]:
    """Every metric, summed over prompts, whose gradient is thereby that of each prompt.

    Raises:
        InputError: A metric has no gradient.
    """
    for metric in reader.metrics:
        with torch.enable_grad():
            values = replace(reader, metrics=[metric]).values(run.logits[None])[0, 0]
            total = (torch.where(reader.scored, values, 0).sum(-1) / reader.scored.sum(-1)).sum()
        if not total.requires_grad:
            raise InputError(f"metric {metric.name} has no gradient; take logit_diff, log_prob or another smooth one")
        yield total


def check_gradient(estimate: Tensor, metric: str) -> None:
    """Refuse estimates that hold NaN.

    Raises:
        InputError: They do.
    """
    if estimate.isnan().any():
        raise InputError(f"the gradient of metric {metric} is NaN on these prompts; change the metric, or patch them")


def gradients(value: Float[Tensor, ""], ends: list[Tensor]) -> tuple[Tensor, ...]:
    """Of a sum with respect to activations; zeros for those that it does not depend on. The graph is kept."""
    return torch.autograd.grad(value, ends, retain_graph=True, materialize_grads=True)


def traced_names(model: HookedModel) -> list[str]:
    """The hook points that `input_gradients` needs."""
    return [name for layer in range(model.cfg.n_layers) for name in _layer(model, layer)] + [_final(model)]


def input_gradients(
    model: HookedModel, run: Traced, value: Float[Tensor, ""], wanted: Collection[Input]
) -> Iterator[tuple[list[Input], Float[Tensor, "input prompt pos d_model"]]]:
    """The gradient of a value with respect to the input of each reader, those of one layer and kind at a time.

    What a reader reads is the residual stream; the gradient with respect to its input counts what the value makes of
    this reader's output, and all that follows from it, and no other way from the stream to the value.

    Args:
        model: Whose parts they are.
        run: Traced at `traced_names(model)`.
        value: Of that run's logits, a sum over prompts.
        wanted: Of these readers' inputs.
    """
    final = _final(model)
    names = [name for name in traced_names(model) if "hook_resid" not in name or name == final]
    found = dict(zip(names, gradients(value, [run[name] for name in names]), strict=True))
    if (LOGITS, None) in wanted:
        yield [(LOGITS, None)], found[final][None]
    for layer in range(model.cfg.n_layers):
        for through in THROUGH:
            name, stream = f"blocks.{layer}.attn.hook_{through}", run[f"blocks.{layer}.hook_resid_pre"]
            places: list[Input] = [(Site(kind="z", layer=layer, head=h), through) for h in range(run[name].shape[2])]
            heads = [head for head, place in enumerate(places) if place in wanted]
            if heads:
                own = _pulled_back(run[name], stream, _by_head(found[name], heads))
                yield [places[head] for head in heads], own
        place: Input = (Site(kind="mlp_out", layer=layer), None)
        if place in wanted:
            name = f"blocks.{layer}.hook_mlp_out"
            yield [place], _pulled_back(run[name], run[_mlp_stream(model, layer)], found[name][None])


def prompts_traced(question: Question, *, n_runs: int, kept: int = 0, readers: int = 0) -> int:
    """How many prompts to trace at once, estimated from above.

    Args:
        question: Whose model is traced, on whose prompts.
        n_runs: Traced runs of a prompt that are in memory together.
        kept: Numbers besides that a position of a prompt needs as long as it is at work.
        readers: And those that it needs a head while gradients are pulled back.

    Raises:
        InputError: There is no room for one prompt.
    """
    cfg, n_pos, sizes = question.model.cfg, question.n_pos, Sizes.of(question)
    heads, d_mlp = cfg.n_heads * cfg.d_head, 0 if cfg.attn_only else cfg.d_mlp
    graph = cfg.n_layers * (24 * cfg.d_model + 12 * heads + 6 * cfg.n_heads * n_pos + 6 * d_mlp)
    traces = n_runs * (sizes.hooked() + sizes.float_bytes * n_pos * graph)
    at_work = traces + sizes.float_bytes * n_pos * readers * cfg.n_heads
    n, room = len(question.pairs), question.max_bytes
    kept *= sizes.float_bytes * n_pos
    return prompts_at_once(n, at_work=at_work, kept=kept, room=room, target=CHUNK_BYTES)


def _layer(model: HookedModel, layer: int) -> list[str]:
    names = [f"blocks.{layer}.hook_resid_pre", *(f"blocks.{layer}.attn.hook_{through}" for through in THROUGH)]
    if not model.cfg.attn_only:
        names += [*{_mlp_stream(model, layer)} - {*names}, f"blocks.{layer}.hook_mlp_out"]
    return names


def _mlp_stream(model: HookedModel, layer: int) -> str:
    return f"blocks.{layer}.hook_resid_{'pre' if model.cfg.parallel_attn_mlp else 'mid'}"


def _final(model: HookedModel) -> str:
    return f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"


def _by_head(
    gradient: Float[Tensor, "prompt pos head_index d_head"], heads: list[int]
) -> Float[Tensor, "input prompt pos head_index d_head"]:
    """One gradient for each of some heads, zero at the others."""
    own = torch.eye(gradient.shape[2], dtype=gradient.dtype, device=gradient.device)[heads]
    return gradient * rearrange(own, "input head -> input 1 1 head 1")


def _pulled_back(
    output: Tensor, stream: Float[Tensor, "prompt pos d_model"], gradient: Float[Tensor, "input ..."]
) -> Float[Tensor, "input prompt pos d_model"]:
    """Gradients at the output of a reader, a row each, taken back to the stream that it reads."""
    (found,) = torch.autograd.grad(
        output, stream, gradient, retain_graph=True, is_grads_batched=True, allow_unused=True
    )
    return stream.new_zeros(len(gradient), *stream.shape) if found is None else found
