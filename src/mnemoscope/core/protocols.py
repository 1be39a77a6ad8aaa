"""What the rest of the package asks of a task and of a model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.core.batch import Batch


@runtime_checkable
class Task(Protocol):
    """A generator of sequences whose latents, counterfactuals and exact predictors are known.

    A task is a frozen dataclass: its fields are its configuration.
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
        """The tokens that can be an answer; distances between predictions are taken over these. Of vectors none."""
        ...

    @property
    def n_ctx(self) -> int:
        """Length of the longest input."""
        ...

    def for_seed(self, seed: int) -> "Task":
        """The configuration that the replicate `seed` sees (its own split of the mappings, say)."""
        ...

    def sample(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of the named split, on the generator's device."""
        ...

    def enumerate(self, *, split: str) -> Batch:
        """Every sequence of the named split, with its probability as weight."""
        ...

    def monitor(self, n: int, *, split: str, generator: torch.Generator) -> Batch:
        """`n` sequences of each subgroup, weighted as the task mixes them: what training progress is read from."""
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
        """What training minimises, at the positions of `outputs`; training passes inputs, targets and `scored` only."""
        ...

    def subgroups(self, batch: Batch) -> Mapping[str, Bool[Tensor, " batch"]]:
        """Kinds of sequences that are reported apart."""
        ...

    def skills(self, batch: Batch) -> Mapping[str, Bool[Tensor, "batch pos"]]:
        """Where a named skill, and nothing else, gives the answer."""
        ...


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
        """Blocks."""
        ...

    @property
    def n_heads(self) -> int:
        """Heads per block."""
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
        """Neurons per MLP; None without MLPs."""
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
        """Whether there are no MLPs."""
        ...

    @property
    def parallel_attn_mlp(self) -> bool:
        """Whether attention and MLP of a block read the same stream."""
        ...

    @property
    def normalization_type(self) -> str | None:
        """`LN`, `LNPre`, `RMS`, `RMSPre`; None for none."""
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
        """What is added to the variance before normalising."""
        ...

    @property
    def d_vocab_out(self) -> int:
        """Number of tokens that are predicted."""
        ...

    @property
    def use_attn_result(self) -> bool:
        """Whether what each head adds to the residual stream is computed by itself."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        ...


@runtime_checkable
class HookPoint(Protocol):
    """Where an activation passes by."""

    name: str | None
    _forward_hooks: Any

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False) -> Any:
        """Call a function with every activation; what is returned can remove it."""
        ...


@runtime_checkable
class Blocks(Protocol):
    """The layers of a model; analyses read weights from them under TransformerLens's names."""

    def __getitem__(self, idx: int, /) -> Any:
        """The layer of a number."""
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
    """

    @property
    def cfg(self) -> ModelConfig:
        """Sizes and kinds of parts."""
        ...

    @property
    def blocks(self) -> Blocks:
        """Layers."""
        ...

    @property
    def hook_dict(self) -> Mapping[str, HookPoint]:
        """Hook points by name; a TransformerBridge has those of its own here, and the classic names as aliases."""
        ...

    def __call__(self, input: Tensor, **kwargs: Any) -> Tensor:
        """Logits `batch pos d_vocab` of tokens `batch pos`, or vectors of vectors."""
        ...

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Tensor:
        """A forward pass with temporary hooks."""
        ...

    def hooks(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        """A context in which hooks are in force."""
        ...

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """Names and parameters."""
        ...

    def run_with_cache(self, *args: Any, **kwargs: Any) -> tuple[Any, Cache]:
        """A forward pass that returns its activations too."""
        ...


def reads_vectors(model: HookedModel) -> bool:
    """Whether a model reads vectors in the place of tokens (`models.building.ReadIn`)."""
    return bool(getattr(getattr(model, "embed", None), "reads_vectors", False))


def has_linear_attention(model: HookedModel) -> bool:
    """Whether attention has no softmax (`models.linear_attention`)."""
    return any(getattr(getattr(block, "attn", None), "linear", False) for block in model.blocks)


def is_hooked(model: HookedModel) -> bool:
    """Whether forward hooks are on the model: they may write to any part of it, and may know the batch's rows."""
    return any(point.fwd_hooks for point in getattr(model, "hook_dict", {}).values())
