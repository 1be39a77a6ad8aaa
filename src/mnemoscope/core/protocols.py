"""The interfaces of tasks and models that the rest of the package uses, and models in evaluation mode."""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mnemoscope.core.batch import Batch, check_is_batch
from mnemoscope.core.errors import InputError


@runtime_checkable
class Task(Protocol):
    """A generator of sequences whose latents, counterfactuals and exact predictors are known.

    A task is a frozen dataclass: its fields are its configuration. One that predicts classes and no tokens names them
    in `classes`, in order; targets and `answers` are then their numbers, and its batches carry the names. One that can
    predict the first tokens only has `d_vocab_out`, their number.

    >>> isinstance(task, ms.Task), task.name
    (True, 'permutation-lookup')
    """

    name: ClassVar[str]
    """Name in run files and on the command line."""
    references: ClassVar[tuple[str, ...]]
    """Names of the exact predictors."""
    corruptions: ClassVar[tuple[str, ...]]
    """Kinds of minimal pairs."""
    slot_size: ClassVar[int]
    """Tokens per slot: 2 where sequences are pairs x y, 1 where they do not come in slots."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def d_vocab(self) -> int:
        """Number of tokens; where inputs are vectors, their width."""
        ...

    @property
    def answers(self) -> Sequence[int]:
        """Tokens, or classes, that can be an answer; distances between predictions are taken over these. Empty for
        vectors.
        """
        ...

    @property
    def n_ctx(self) -> int:
        """Length of the longest input."""
        ...

    def for_seed(self, seed: int) -> "Task":
        """The configuration of the replicate `seed`, for example with its own split of the mappings."""
        ...

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of the named split, on the generator's device."""
        ...

    def enumerate(self, *, split: str) -> Batch:
        """Every sequence of the named split, with its probability as weight."""
        ...

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of each subgroup, weighted as the task mixes them, for measures of training progress."""
        ...

    def corrupt(self, batch: Batch, *, kind: str, generator: torch.Generator) -> Batch:
        """Minimal pairs: row i differs from row i of `batch` in the named respect only."""
        ...

    def reference(self, batch: Batch, name: str) -> Float[Tensor, "batch pos d_vocab"]:
        """Probabilities of an exact predictor, or the vectors that it predicts; NaN where it is undefined and at
        positions that are not scored.
        """
        ...

    def loss(self, outputs: Float[Tensor, "batch pos d_vocab"], batch: Batch) -> Float[Tensor, ""]:
        """The loss to minimise, at the positions of `outputs`; training passes only inputs, targets and `scored`."""
        ...

    def subgroups(self, batch: Batch) -> Mapping[str, Bool[Tensor, " batch"]]:
        """Masks of the kinds of sequences that are reported apart, by name."""
        ...

    def skills(self, batch: Batch) -> Mapping[str, Bool[Tensor, "batch pos"]]:
        """Masks of the positions at which a named skill, and nothing else, gives the answer."""
        ...


def class_names(task: Task) -> tuple[str, ...]:
    """Names of the classes that a task predicts, in order; empty where it predicts tokens or vectors."""
    return tuple(getattr(task, "classes", ()))


def restricted_outputs(task: Task) -> int | None:
    """Number of classes, or of first tokens, that a task predicts; None where it predicts every token."""
    return len(class_names(task)) or getattr(task, "d_vocab_out", None)


def n_outputs(task: Task) -> int:
    """Number of classes or of tokens that a task predicts."""
    return restricted_outputs(task) or task.d_vocab


@runtime_checkable
class VectorTask(Task, Protocol):
    """A task whose inputs and targets are vectors, and whose loss is a mean squared error."""

    @property
    def d_output(self) -> int:
        """Width of the targets."""
        ...

    @property
    def parts(self) -> Mapping[str, slice]:
        """Parts of the targets that are reported apart, by name."""
        ...


@runtime_checkable
class ModelConfig(Protocol):
    """The part of TransformerLens's configuration that every model has; other fields are asked for by `getattr`."""

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        ...

    @property
    def n_heads(self) -> int:
        """Number of heads per block."""
        ...

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        ...

    @property
    def d_head(self) -> int:
        """Width of a head."""
        ...

    @property
    def d_mlp(self) -> Any:
        """Number of neurons per MLP; None without MLPs."""
        ...

    @property
    def d_vocab(self) -> int:
        """Number of tokens; where the model reads vectors, their width."""
        ...

    @property
    def n_ctx(self) -> int:
        """Length of the longest input."""
        ...

    @property
    def attn_only(self) -> bool:
        """True if there are no MLPs."""
        ...

    @property
    def parallel_attn_mlp(self) -> bool:
        """True if attention and MLP of a block read the same stream."""
        ...

    @property
    def normalization_type(self) -> str | None:
        """`LN`, `LNPre`, `RMS` or `RMSPre`; None: no normalisation."""
        ...

    @property
    def positional_embedding_type(self) -> str:
        """`standard` where positions are added to the residual stream."""
        ...

    @property
    def attention_dir(self) -> str:
        """`causal` or `bidirectional`."""
        ...

    @property
    def act_fn(self) -> str | None:
        """Activation function of the MLPs."""
        ...

    @property
    def eps(self) -> float:
        """Number added to the variance before normalising."""
        ...

    @property
    def d_vocab_out(self) -> int:
        """Number of tokens that are predicted."""
        ...

    @property
    def use_attn_result(self) -> bool:
        """True if the contribution of each head to the residual stream is computed by itself."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Precision of weights and activations."""
        ...


@runtime_checkable
class HookPoint(Protocol):
    """A module that an activation passes through."""

    name: str | None
    _forward_hooks: Any

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False) -> Any:
        """Call a function with every activation; the handle that is returned can remove it."""
        ...


@runtime_checkable
class Blocks(Protocol):
    """The layers of a model; analyses read weights from them under TransformerLens's names."""

    def __getitem__(self, idx: int, /) -> Any:
        """The block of this number."""
        ...


@runtime_checkable
class Cache(Protocol):
    """Activations by hook point."""

    def __getitem__(self, key: str, /) -> Tensor:
        """The activation at a hook point."""
        ...

    def __iter__(self) -> Iterator[str]:
        """The names of the hook points."""
        ...


@runtime_checkable
class HookedModel(Protocol):
    """The part of TransformerLens's interface that analyses use.

    A HookedTransformer has it, and so has a TransformerBridge.

    >>> def n_weights(model: ms.HookedModel) -> int:
    ...     return sum(weight.numel() for _, weight in model.named_parameters())
    >>> n_weights(model)
    9286
    """

    @property
    def cfg(self) -> ModelConfig:
        """Sizes and kinds of parts."""
        ...

    @property
    def blocks(self) -> Blocks:
        """The blocks."""
        ...

    @property
    def hook_dict(self) -> Mapping[str, HookPoint]:
        """Hook points by name; a TransformerBridge has those of its own here, and the classic names as aliases."""
        ...

    def __call__(self, input: Tensor, **kwargs: Any) -> Tensor:
        """Logits `batch pos d_vocab` for tokens `batch pos`; output vectors for input vectors."""
        ...

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Tensor:
        """A forward pass with temporary hooks."""
        ...

    def hooks(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        """A context in which hooks are on the model."""
        ...

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """Names and parameters."""
        ...

    def run_with_cache(self, *args: Any, **kwargs: Any) -> tuple[Any, Cache]:
        """A forward pass that returns its activations too."""
        ...


@runtime_checkable
class HasModel(Protocol):
    """A run or a subject: analyses take it in place of its model."""

    def hooked(self) -> HookedModel:
        """The model; of a run, that of the last checkpoint."""
        ...


ModelLike = HookedModel | HasModel
"""A run, a subject or a hooked model: everything that analyses take as `model`."""


def resolve_model(model: ModelLike, **batches: Batch) -> HookedModel:
    """The model of a run (its last checkpoint, on the CPU) or of a subject; a hooked model as it is.

    Raises InputError where it is something else, or where one of the `batches`, by the name of its argument, is none.

    >>> ms.core.resolve_model(run).cfg.n_heads
    2
    """
    for argument, batch in batches.items():
        check_is_batch(batch, argument)
    if hasattr(model, "run_with_hooks"):  # not by isinstance, which does not see the submodules of a module
        return cast("HookedModel", model)
    if isinstance(model, HasModel):
        return model.hooked()
    given: object = model
    if isinstance(given, str | PathLike):
        way_out = "open it with ms.open_run"
    elif isinstance(given, list | tuple):
        way_out = "give one at a time, or call ms.analyses.over_runs"
    else:
        way_out = "ms.open_run gives a run, ms.language_model a model"
    raise InputError(
        "model must be a run, a subject or a hooked model such as a HookedTransformer; "
        f"got {reprlib.repr(given)}: {way_out}"
    )


def reads_vectors(model: HookedModel) -> bool:
    """True if a model reads vectors in place of tokens (`models.building.ReadIn`)."""
    return bool(getattr(getattr(model, "embed", None), "reads_vectors", False))


def norm_gain(norm: Any) -> Tensor:
    """The gain of a normalisation; the bridge of a Gemma shows it less one."""
    return norm.w + 1 if getattr(getattr(norm, "config", None), "rmsnorm_uses_offset", False) else norm.w


def has_linear_attention(model: HookedModel) -> bool:
    """True if attention has no softmax (`models.attention`)."""
    return any(getattr(getattr(block, "attn", None), "linear", False) for block in model.blocks)


def attention_mix(model: HookedModel) -> float:
    """Share of the softmax in the patterns of a model; below 1 a constant is added (`models.attention`)."""
    return min((getattr(getattr(block, "attn", None), "mix", 1.0) for block in model.blocks), default=1.0)


def position_kind(model: HookedModel) -> str:
    """The kind of positions: relative where the keys of a layer carry vectors of distances (`models.attention`), else
    as the configuration says.
    """
    relative = any(getattr(getattr(block, "attn", None), "W_rel", None) is not None for block in model.blocks)
    return "relative" if relative else model.cfg.positional_embedding_type


def masked_token(model: HookedModel) -> int | None:
    """Token to which no position of a model attends; None: every token is attended to (`models.attention`)."""
    padding: Any = getattr(getattr(model, "embed", None), "padding", None)
    return None if padding is None else padding.token


def is_hooked(model: HookedModel) -> bool:
    """True if the model carries forward hooks, which may write to any part of it and may know the batch's rows."""
    return any(point.fwd_hooks for point in getattr(model, "hook_dict", {}).values())


@contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put a model in evaluation mode, and every module back afterwards, also after an exception.

    Every run of a measured model goes through it: by `unembedding`, by `intervened`, or by itself. A model that is no
    `nn.Module` has no modes.
    """
    roots = (model, getattr(model, "original_model", None))  # a bridge leaves out modules of what it is built on
    modules = {id(each): each for root in roots if isinstance(root, nn.Module) for each in root.modules()}
    training = [module for module in modules.values() if module.training]
    try:
        for module in training:  # one by one: `eval()` and `train()` of a model would lose what differs within it
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def without_hooks(model: HookedModel) -> Iterator[None]:
    """Run a model without dropout and without hooks at its hook points; afterwards it is as it was."""
    hidden = [(point._forward_hooks, dict(point._forward_hooks)) for point in {*model.hook_dict.values()}]
    try:
        for hooks, _ in hidden:
            hooks.clear()
        with evaluation_mode(model):
            yield
    finally:
        for hooks, before in hidden:
            hooks.update(before)
