"""Traced forward passes, and gradients at every reader's input. Hooks that are on the model are traced too."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.core.batch import Inputs
from mnemoscope.core.dictionary_places import layer_dictionary
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site, Through
from mnemoscope.engine.architecture import transformer_without_hooks
from mnemoscope.engine.block import Block, OutputPlaces
from mnemoscope.engine.budget import efficient_pass_bytes, n_prompts_at_once
from mnemoscope.engine.changes import Changes
from mnemoscope.engine.pointwise import Norm
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.feature_parts import TracedFeatures, written_hooks
from mnemoscope.interventions.graph import Input, reader_inputs, stream_name
from mnemoscope.interventions.measurement import MetricReader, SweepQuestion
from mnemoscope.interventions.reading import pick_columns, unembed_only
from mnemoscope.interventions.recordings import RecordedRun

CHUNK_BYTES = 2**26
"""Bytes of one traced forward pass on a CPU: larger ones gain nothing, unless the weights are larger."""


def trace_run(
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

    The engine runs it where it can (`weights`; None: it is looked for), equal to 1e-5: its graph holds activations
    only, and no copies of weights. Activations at `names` are kept; at the hook points of `starts` the run goes on with
    the given ones. With `where_read` the engine keeps, after the heads of the last layer, only the positions `read`.
    """
    if torch.is_inference_mode_enabled() or any(weight.is_inference() for _, weight in model.named_parameters()):
        raise InputError(
            "gradients need a model that was made, and is run, outside torch.inference_mode(); use torch.no_grad() in "
            "its place, and load the model again"
        )
    tokens = tokens.clone() if tokens.is_inference() else tokens
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
            logits = weights(
                tokens.to(device), OutputPlaces(columns=read.to(device)), Changes(changes, where_read=where_read)
            )
        return RecordedRun(activations=found, logits=logits)
    hooks = [(name, partial(keep, name=name)) for name in points]
    with torch.enable_grad(), unembed_only(model, pick_columns(read)) as picked:
        logits = picked(model.run_with_hooks(tokens, fwd_hooks=hooks))
    return RecordedRun(activations=found, logits=logits)


def metric_sums(reader: MetricReader, run: RecordedRun) -> Iterator[Float[Tensor, ""]]:
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


def activation_gradients(value: Float[Tensor, ""], ends: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a sum with respect to activations, zero for those that it does not depend on; the graph is kept."""
    return torch.autograd.grad(value, ends, retain_graph=True, materialize_grads=True)


def n_prompts_to_trace(
    question: SweepQuestion, *, n_runs: int, kept: int = 0, readers: int = 0, by_engine: bool = False
) -> int:
    """The number of prompts to trace at once, from an upper estimate of their memory; InputError without room for one.

    `n_runs` traced runs of a prompt are in memory together. `kept` are further numbers for a position as long as its
    prompt is at work; `readers` are those for a position and head while gradients are pulled back. `by_engine` says
    that the engine is certain to trace, which keeps less and copies no weights.
    """
    cfg, n_pos, sizes = question.model.cfg, question.n_pos, question.sizes
    heads, d_mlp = cfg.n_heads * cfg.d_head, 0 if cfg.attn_only else cfg.d_mlp
    widths = 12 * cfg.d_model + 10 * heads + 5 * d_mlp if by_engine else 24 * cfg.d_model + 12 * heads + 6 * d_mlp
    graph = cfg.n_layers * (widths + 6 * cfg.n_heads * n_pos + 6 * sizes.n_features)
    traces = n_runs * (sizes.hooked_pass_bytes(everywhere=False) + sizes.float_bytes * n_pos * graph)
    at_work = traces + sizes.float_bytes * n_pos * readers * cfg.n_heads
    n, target = len(question.pairs), n_runs * efficient_pass_bytes(question.model, CHUNK_BYTES)
    room = question.max_bytes - (0 if by_engine else sizes.traced_weight_bytes())
    kept *= sizes.float_bytes * n_pos
    return n_prompts_at_once(n, working_bytes=at_work, kept_bytes=kept, max_bytes=room, target=target)


def traced_names(model: HookedModel) -> list[str]:
    """The hook points that `input_gradients` needs."""
    ends = (
        name for place in reader_inputs(model) for name in (stream_name(model, *place), _output_hook(model, *place))
    )
    return list(dict.fromkeys(ends))


def _output_hook(model: HookedModel, reader: Site | Literal["logits"], through: Through | None) -> str:
    """The hook point of a reader's q, k, v or output; for the logits that of the stream itself."""
    if not isinstance(reader, Site):
        return stream_name(model, reader, through)
    if reader.kind == "error":
        return written_hooks(reader)[0]
    return reader.hook if through is None else f"blocks.{reader.layer}.attn.hook_{through}"


def input_gradients(
    model: HookedModel,
    run: RecordedRun,
    value: Float[Tensor, ""],
    wanted: Collection[Input],
    *,
    weights: Transformer | None = None,
) -> Iterator[tuple[list[Input], Float[Tensor, "input prompt pos d_model"]]]:
    """The gradient of a value with respect to the input of each reader, those of one layer and kind at a time.

    The gradient at q, k, v and at the output of an MLP is pulled back to the residual stream through that reader alone:
    by the weights of heads where the engine has the model (`weights`; None: it is looked for), else by automatic
    differentiation, so that hooks on the model count as they are. `run` is traced at `traced_names(model)`; `value` is
    a sum over prompts, computed from its logits.
    """
    groups: dict[str, list[Input]] = {}
    for place in reader_inputs(model):
        groups.setdefault(_output_hook(model, *place), []).append(place)
    weights = transformer_without_hooks(model, ()) if weights is None else weights
    past = {} if weights is None or not weights.has_middle else _streams_past_mlps(model)
    ends = [*groups, *past.values()]
    found = dict(zip(ends, activation_gradients(value, [run[name] for name in ends]), strict=True))
    for name, places in groups.items():
        own = [number for number, place in enumerate(places) if place in wanted]
        reader, through = places[0]
        if not own:
            continue
        stream, gradient = run[stream_name(model, reader, through)], found[name]
        if not isinstance(reader, Site):
            pulled = gradient[None]
        elif reader.kind == "feature":
            for some, each in _traced_features(model, run, found, reader).at_inputs(own):
                yield [places[number] for number in some], each
            continue
        elif name in past:
            pulled = (found[past[name]] - gradient)[None]
        elif through is None:
            pulled = _pulled_back(run[name], stream, gradient[None])
        elif weights is None or reader.layer is None:
            pulled = _pulled_back(run[name], stream, _split_by_head(gradient, own))
        else:
            pulled = _gradient_through_weights(weights.blocks[reader.layer], through, stream, gradient, own)
        if isinstance(reader, Site) and reader.kind == "error":
            pulled = pulled - _traced_features(model, run, found, reader).total()
        yield [places[number] for number in own], pulled


def _traced_features(model: HookedModel, run: RecordedRun, found: Mapping[str, Tensor], part: Site) -> TracedFeatures:
    """The features of the layer of a part; `found` has gradients by hook point."""
    whole, features = written_hooks(part if part.kind == "error" else Site(kind="error", layer=part.layer))
    return TracedFeatures(
        dictionary=layer_dictionary(model, part.layer),
        norm=Norm(kind=model.cfg.normalization_type, eps=model.cfg.eps),
        features=run[features],
        gradient=found[features],
        stream=run[stream_name(model, part, None)],
        whole=run[whole],
    )


def _streams_past_mlps(model: HookedModel) -> dict[str, str]:
    """The stream that each MLP reads and is added to, by its output: both gradients differ by what it passes."""
    return {f"blocks.{layer}.hook_mlp_out": f"blocks.{layer}.hook_resid_mid" for layer in range(model.cfg.n_layers)}


@torch.no_grad()
def _gradient_through_weights(
    block: Block,
    through: Through,
    stream: Float[Tensor, "prompt pos d_model"],
    gradient: Float[Tensor, "prompt pos head_index d_head"],
    heads: list[int],
) -> Float[Tensor, "own prompt pos d_model"]:
    """Gradients at the queries, keys or values of some heads, taken back to the stream: W times each, then the norm."""
    attn = block.attention
    w = attn.input_projection(through)[0].unflatten(0, (-1, attn.d_head))
    if len(heads) < len(w):
        gradient, w = gradient[:, :, heads], w[heads]
    shape = "prompt pos own d_head, own d_head d_model -> own prompt pos d_model"
    return block.ln1.pull_back(stream, einsum(gradient, w, shape))


def _split_by_head(
    gradient: Float[Tensor, "prompt pos head_index d_head"], heads: list[int]
) -> Float[Tensor, "input prompt pos head_index d_head"]:
    """One gradient for each of some heads, zero at the others."""
    own = torch.eye(gradient.shape[2], dtype=gradient.dtype, device=gradient.device)[heads]
    return gradient * rearrange(own, "input head -> input 1 1 head 1")


def _pulled_back(
    output: Tensor, stream: Float[Tensor, "prompt pos d_model"], gradient: Float[Tensor, "input ..."]
) -> Float[Tensor, "input prompt pos d_model"]:
    """Gradients at the output of a reader, a row each, taken back to the stream that it reads."""
    if len(gradient) == 1:
        (found,) = torch.autograd.grad(output, stream, gradient[0], retain_graph=True, materialize_grads=True)
        return found[None]
    (found,) = torch.autograd.grad(
        output, stream, gradient, retain_graph=True, is_grads_batched=True, allow_unused=True
    )
    return stream.new_zeros(len(gradient), *stream.shape) if found is None else found
