"""Predictions of any hooked model on a task's sequences, in chunks of bounded size."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mnemoscope.core import metrics
from mnemoscope.core.batch import CHUNK, Batch, check_is_batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import (
    HookedModel,
    ModelLike,
    Task,
    evaluation_mode,
    masked_token,
    n_outputs,
    reads_vectors,
    resolve_model,
)
from mnemoscope.core.skills import Skills
from mnemoscope.engine.architecture import parameter_key
from mnemoscope.engine.budget import LOG_PROBS, check_result_bytes, output_width, split_into_passes
from mnemoscope.engine.pointwise import log_softmax
from mnemoscope.interventions.reading import logits_at, logits_by_engine
from mnemoscope.interventions.recordings import check_no_nan


def check_fits(model: ModelLike, *batches: Batch, vectors: bool = False) -> None:
    """Refuse a model that cannot be run on a batch, or whose weights hold NaN.

    TransformerLens turns NaN in attention into zeros, so that logits do not always tell. Unless the analysis takes
    `vectors` too, they are refused. The InputError names what is needed and what the model has.

    >>> ms.analyses.check_fits(model, batch)
    """
    for batch in batches:
        check_is_batch(batch)
    model = resolve_model(model)
    if any(batch.has_vectors for batch in batches) and not vectors:
        raise InputError(
            "this analysis is of predicted tokens, and the batch holds vectors; evaluate, ablate, patch, patch_edges, "
            "probe and the replacement of attention take vectors"
        )
    _check_weights(model)
    for batch in batches:
        _check_batch(model, batch)


_WITHOUT_NAN: WeakKeyDictionary[Any, object] = WeakKeyDictionary()


def _check_weights(model: HookedModel) -> None:
    """Refuse weights that hold NaN; checked once until the weights change, since it takes as long as a pass."""
    params = dict(model.named_parameters())
    tracked = not any(weight.is_inference() for weight in params.values())  # such tensors do not tell of changes
    state = parameter_key(params) if tracked else None
    if state is not None and _WITHOUT_NAN.get(model) == state:
        return
    for name, weight in params.items():
        if weight.sum().isnan() and weight.isnan().any():  # infinities of both signs add up to NaN too
            raise InputError(f"the model's weight {name} holds NaN; take an earlier checkpoint")
    _WITHOUT_NAN[model] = state


def _check_batch(model: HookedModel, batch: Batch) -> None:
    if len(batch) == 0:
        raise InputError("the batch holds no sequence; give at least one")
    _check_kind(model, batch)
    n_pos = batch.inputs.shape[1]
    if batch.has_vectors:
        given = (batch.inputs.shape[-1], batch.targets.shape[-1])
        if given != (model.cfg.d_vocab, model.cfg.d_vocab_out):
            sizes = f"{model.cfg.d_vocab} and {model.cfg.d_vocab_out}; those of the batch {given[0]} and {given[1]}"
            raise InputError(f"the model's inputs and outputs are vectors of width {sizes}; take the model's own task")
    else:
        if int(batch.inputs.min()) < 0:
            raise InputError("the batch holds a token below 0; tokens count from 0")
        _check_highest(model.cfg.d_vocab, batch.inputs, "tokens", "uses token")
        if batch.classes and len(batch.classes) != output_width(model):
            given = f"the model has {output_width(model)} outputs and the batch names {len(batch.classes)} classes"
            raise InputError(f"{given}, {', '.join(batch.classes)}; take the model's own task")
        if batch.scored.any():
            _check_highest(output_width(model), batch.targets[batch.scored], "outputs", "has the target")
        _check_padding(model, batch)
    if model.cfg.n_ctx < n_pos:
        unit = "vectors" if batch.has_vectors else "tokens"
        raise InputError(f"the model reads {model.cfg.n_ctx} {unit} and the batch has {n_pos}; take a model with more")


def _check_highest(n: int, given: Tensor, what: str, word: str) -> None:
    """Refuse tokens or targets that a model does not have."""
    if n <= (highest := int(given.max())):
        raise InputError(f"the model has {n} {what} and the batch {word} {highest}; take a model with more")


def _check_padding(model: HookedModel, batch: Batch) -> None:
    """Refuse padding that the model would read: on the left, which shifts positions, or where it attends ahead."""
    if batch.ragged and getattr(model.cfg, "attention_dir", "causal") != "causal":
        padding = batch.inputs[~batch.real]
        if (masked := masked_token(model)) is None:
            raise InputError(
                "the batch is padded, and the model attends in both directions and would read the padding; "
                "train it with model.masked, or take sequences of one length"
            )
        if (padding != masked).any():
            raise InputError(f"the batch must be padded with token {masked}, which the model leaves out of attention")
    tokenizer = getattr(model, "tokenizer", None)
    pad, bos = (getattr(tokenizer, f"{kind}_token_id", None) for kind in ("pad", "bos"))
    if pad is None or batch.inputs.shape[1] < 2:
        return
    n_first = 2 if pad == bos else 1  # the token that begins a text may be that of the padding
    left = (batch.inputs[:, :n_first] == pad).all(1) & (batch.inputs != pad).any(1)
    if left.any():
        raise InputError(
            f"row {int(left.nonzero()[0])} is padded on the left, and the model would read the padding; "
            "mnemoscope.prompts makes batches of texts, and pads on the right"
        )


def _check_kind(model: HookedModel, batch: Batch) -> None:
    if batch.has_vectors != reads_vectors(model):
        kinds = ("vectors", "tokens") if batch.has_vectors else ("tokens", "vectors")
        raise InputError(f"the batch holds {kinds[0]} and the model reads {kinds[1]}; take the model's own task")


Outcome = Callable[..., Mapping[str, Tensor]]
"""From logits `place d_vocab` and what is due there, or other facts about places, to numbers for each, by name."""


@torch.no_grad()
def read_logits_at(
    model: HookedModel,
    batch: Batch,
    where: Bool[Tensor, "batch pos"],
    use: Outcome,
    *,
    beside: Sequence[Shaped[Tensor, "batch pos"]] | None = None,
    run: Callable[[slice, Tensor], Tensor] | None = None,
    max_bytes: int | None = None,
    kept: int = 0,
    bytes_per_logit: int = LOG_PROBS,
) -> dict[str, Float[Tensor, "batch pos ..."]]:
    """Numbers from the logits at some places, NaN elsewhere, in forward passes that keep to a number of bytes.

    `use` gets the logits (or vectors) of some places, and the values of `beside` there; None: the batch's targets.
    `run` maps rows and their places to the logits there; None: the model as it is. Only the places `where` are
    unembedded. `max_bytes`, `kept` and `bytes_per_logit` are as for `engine.budget.parts`; InputError if `max_bytes` is
    too small.
    """
    found: dict[str, list[Tensor]] = {}
    told = [batch.targets] if beside is None else beside
    for rows, some in split_into_passes(model, where, max_bytes=max_bytes, kept=kept, bytes_per_logit=bytes_per_logit):
        logits = run(rows, some) if run else logits_at(model, batch.inputs[rows], some)
        here = [values[rows][some.to(values.device)].to(logits.device) for values in told]
        for name, values in use(logits, *here).items():
            found.setdefault(name, []).append(values)
    return {name: scatter(torch.cat(values), where) for name, values in found.items()}


def scatter(values: Float[Tensor, "place ..."], where: Bool[Tensor, "batch pos"]) -> Float[Tensor, "batch pos ..."]:
    """Put the numbers of some places where they belong, and NaN elsewhere."""
    result = values.new_full((*where.shape, *values.shape[1:]), torch.nan)
    result[where.to(values.device)] = values
    return result


@torch.no_grad()
def predicted_vectors(model: ModelLike, batch: Batch) -> Float[Tensor, "batch pos d_output"]:
    """The outputs of a model that reads vectors, in float64.

    Raises InputError where the model does not fit the batch, or its outputs hold NaN.

    >>> spec = ms.preset("retrieval-2-1-layer")
    >>> chains = spec.task.sample(4, split="test", generator=ms.generator(0, "chains"))
    >>> sizes = {"d_vocab": spec.task.d_vocab, "n_ctx": spec.task.n_ctx, "d_output": spec.task.d_output}
    >>> reader = ms.models.build(spec.model, seed=0, **sizes)
    >>> ms.analyses.predicted_vectors(reader, chains).shape == chains.targets.shape
    True
    """
    model = resolve_model(model, batch=batch)
    check_fits(model, batch, vectors=True)
    with evaluation_mode(model):
        found = torch.cat([model(chunk) for chunk in batch.inputs.split(CHUNK)]).double()
    check_no_nan(found)
    return found


def skill_losses(
    outputs: Float[Tensor, "batch pos d_output"], batch: Batch, skills: Skills
) -> dict[str, tuple[Float[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]]:
    """The loss at every position, and a mask of where it counts, for every skill and every part of vectors.

    Parts of vectors count at the scored positions.
    """
    targets, scored = batch.targets.to(outputs.device), batch.scored.to(outputs.device)
    losses = metrics.loss(outputs, targets)
    found = {name: (losses, mask.to(outputs.device)) for name, mask in skills.items()}
    parts = {name: (metrics.loss(outputs[..., p], targets[..., p]), scored) for name, p in batch.parts.items()}
    return {**found, **parts}


def check_task(model: HookedModel, task: Task, batch: Batch) -> None:
    """Refuse a model that is too small for a task, or does not fit the batch."""
    _check_kind(model, batch)
    if model.cfg.d_vocab < task.d_vocab:
        raise InputError(
            f"the model has {model.cfg.d_vocab} tokens and the task {task.d_vocab}; take a model with more"
        )
    check_fits(model, batch)


@torch.no_grad()
def log_probs(
    model: ModelLike, task: Task, batch: Batch, *, where: Bool[Tensor, "batch pos"] | None = None
) -> Float[Tensor, "batch pos d_vocab"]:
    """Log-probabilities of the tokens or classes that the task predicts, in float64.

    Further tokens in the model's vocabulary share in the normalisation. Places outside `where` are NaN. Raises
    InputError where the model is too small for the task, or its logits hold NaN.

    >>> ms.analyses.log_probs(model, task, batch).shape
    torch.Size([64, 9, 6])
    """
    model = resolve_model(model, batch=batch)
    check_task(model, task, batch)
    if where is None:
        where = torch.ones(batch.inputs.shape[:2], dtype=torch.bool, device=batch.inputs.device)
    way_out = "take fewer sequences, or an analysis that reads scored positions only, such as evaluate"
    check_result_bytes("log-probabilities of all tokens at all positions", 8 * where.numel() * n_outputs(task), way_out)
    chunks = [
        to_log_probs(logits_by_engine(model, batch.inputs[rows], some))[:, : n_outputs(task)].clone()
        for rows, some in split_into_passes(model, where)
    ]
    return scatter(torch.cat(chunks), where)


def answer_scores(
    logits: Float[Tensor, "*rows d_vocab"], targets: Int[Tensor, "*rows"]
) -> dict[str, Float[Tensor, "*rows"]]:
    """The `accuracy` (1 where the most probable token is the target) and the target's `log_prob` in nats; float64.

    Refuses NaN.
    """
    log_probs = to_log_probs(logits)
    return {
        "accuracy": metrics.is_correct(log_probs, targets).double(),
        "log_prob": metrics.at_target(log_probs, targets),
    }


def to_log_probs(logits: Float[Tensor, "*rows d_vocab"]) -> Float[Tensor, "*rows d_vocab"]:
    """Log-probabilities from logits, in float64; raises InputError where these hold NaN.

    >>> ms.analyses.to_log_probs(torch.zeros(2)).exp().tolist()
    [0.5, 0.5]
    """
    result = log_softmax(logits.double())
    if result.isnan().any():
        raise InputError(
            "the model's logits hold NaN or no finite value; check its weights, or take an earlier checkpoint"
        )
    return result
