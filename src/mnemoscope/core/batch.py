"""A batch of sequences with everything that its generator knows about them, and named tensors and batches as values."""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core import positions as naming
from mnemoscope.core.errors import InputError

Inputs = Int[Tensor, "batch pos"] | Float[Tensor, "batch pos d_input"]
"""Tokens, or vectors."""
Targets = Int[Tensor, "batch pos"] | Float[Tensor, "batch pos d_output"]
"""The same of what is due."""
_TOKENS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
CHUNK = 1024
"""Sequences in one forward pass; on a CPU larger ones leave the cache and take more than twice as long."""


def loss_unit(*, vectors: bool) -> str:
    """The unit of the loss where answers are vectors, or tokens."""
    return "squared error" if vectors else "nats"


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Inputs, targets and latents of a number of sequences, of tokens or of vectors.

    Attributes:
        inputs: Tokens that the model sees, or vectors.
        targets: The next token at every position, or the right class or vector there.
        scored: Where loss and metrics look.
        weights: Probability of each row under the task's distribution (an enumeration); None: every row counts the
            same.
        known: Latents that only the generator knows, batch axis first.
        derive: Latents that follow from the inputs; computed at the first use. Where it is a method of the task the
            batch calls positions as that task does.
        parts: Named parts of target vectors that are reported apart; none for tokens.
        lengths: Of sequences that are padded on the right; None: all positions are real.
        symbol: The name of a token; None: its number.
        classes: Names of the classes that are targets, in order; empty: those of the task whose method `derive` is, and
            where it has none targets are tokens.

    >>> tokens = torch.tensor([[1, 4, 2, 5, 1]])
    >>> mine = ms.Batch(inputs=tokens, targets=tokens.roll(-1, 1), scored=torch.ones_like(tokens, dtype=torch.bool))
    >>> len(mine), model(mine.inputs).shape
    (1, torch.Size([1, 5, 6]))
    """

    inputs: Inputs
    targets: Targets
    scored: Bool[Tensor, "batch pos"]
    weights: Float[Tensor, " batch"] | None = None
    known: Mapping[str, Tensor] = field(default_factory=dict)
    derive: Callable[["Batch"], Mapping[str, Tensor]] | None = None
    parts: Mapping[str, slice] = field(default_factory=dict)
    lengths: Int[Tensor, " batch"] | None = None
    symbol: Callable[[int], str] | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("inputs", "targets"):
            value = getattr(self, name)
            is_vectors, is_tokens = value.is_floating_point(), value.dtype in _TOKENS
            if not (is_vectors and value.ndim == 3) and not (is_tokens and value.ndim == 2):
                raise InputError(
                    f"{name} of a batch must be tokens, whole numbers (batch, pos), or vectors, floats (batch, pos, "
                    f"width); got {value.dtype} of shape {tuple(value.shape)}; make tokens whole with .long()"
                )
        places = self.inputs.shape[:2]
        self._check_shape("targets", self.targets.shape[:2], places)
        self._check_shape("scored", self.scored.shape, places)
        if self.scored.dtype != torch.bool:
            raise InputError(
                f"scored of a batch must be a mask of bool; got {self.scored.dtype}; convert it by .bool()"
            )
        for name, value in (("weights", self.weights), ("lengths", self.lengths)):
            if value is not None:
                self._check_shape(name, value.shape, places[:1])
        if not self.classes:
            object.__setattr__(self, "classes", tuple(getattr(getattr(self.derive, "__self__", None), "classes", ())))
        for name, value in self.known.items():
            self._check_shape(f"latent {name}", value.shape[:1], places[:1])

    def _check_shape(self, name: str, given: torch.Size, allowed: torch.Size) -> None:
        if given != allowed:
            raise InputError(
                f"{name} of a batch must fit inputs of shape {tuple(self.inputs.shape)}, and so begin with "
                f"{tuple(allowed)}; got {tuple(given)}; take the same rows and positions of all"
            )

    def check_scored(self) -> None:
        """Raise InputError if no position is scored: a mean over the scored positions would be NaN."""
        if not self.scored.any():
            raise InputError(
                f"scored of a batch must be True somewhere; none of the {self.scored.numel()} places is; choose "
                "positions, or other sequences"
            )

    @property
    def real(self) -> Bool[Tensor, "batch pos"]:
        """True for positions that are no padding."""
        n_pos = self.inputs.shape[1]
        return torch.arange(n_pos, device=self.known_lengths.device) < self.known_lengths[:, None]

    @property
    def known_lengths(self) -> Int[Tensor, " batch"]:
        """The number of positions of every row that are no padding."""
        full = self.inputs.new_full((len(self),), self.inputs.shape[1], dtype=torch.long)
        return full if self.lengths is None else self.lengths

    @property
    def ragged(self) -> bool:
        """True if some rows are padded."""
        return self.lengths is not None and bool((self.lengths < self.inputs.shape[1]).any())

    @property
    def symbols(self) -> list[list[str]]:
        """The names of the tokens of every row, padding included."""
        name = self.symbol or str
        names = {number: name(number) for number in self.inputs.unique().tolist()}
        return [[names[number] for number in row] for row in self.inputs.tolist()]

    def output_name(self, number: int) -> str:
        """The name of an output: of a class, else of a token."""
        return self.classes[number] if self.classes else (self.symbol or str)(number)

    @cached_property
    def positions(self) -> tuple[str, ...]:
        """The names of positions by the task whose method `derive` is; empty: they have no names."""
        return naming.position_names(getattr(self.derive, "__self__", None))

    @property
    def common_tokens(self) -> list[str]:
        """The token at every position, where all rows have the same there; else the place that all of them have there,
        by its latent; else `…`.
        """
        symbols, real = self.symbols, self.real.tolist()
        names = []
        for pos in range(self.inputs.shape[1]):
            there = {row[pos] for row, known in zip(symbols, real, strict=True) if known[pos]}
            places = (
                name
                for name, latent in self.latents.items()
                if latent.shape == (len(self),) and not latent.is_floating_point() and bool((latent == pos).all())
            )
            names.append(there.pop() if len(there) == 1 else next(places, "…"))
        return names

    def position_name(self, pos: int) -> str:
        """The name of a position, else its number."""
        return self.positions[pos] if self.positions else str(pos)

    def called(self, pos: int) -> str:
        """Old name of `position_name`."""
        warnings.warn("Batch.called is now Batch.position_name", FutureWarning, stacklevel=2)
        return self.position_name(pos)

    def labels(self, **axes: Sequence[Any]) -> dict[str, tuple[str, list[str]]]:
        """Coordinates of a result along axes of positions.

        `axes` maps the name of a dimension to the positions along it. Gives `pos_name` along `pos`, and so on, where
        positions have names; else `pos_token`, the token there, where tokens have; else none.
        """
        if self.positions or self.symbol is None or self.has_vectors:
            return naming.labels(self.positions, **axes)
        tokens = self.common_tokens
        return {f"{axis}_token": (axis, [tokens[int(pos)] for pos in along]) for axis, along in axes.items()}

    @cached_property
    def clusters(self) -> Int[Tensor, " batch"]:
        """The number of the cluster of every row, from 0: rows with one value of the latent that the task names
        (`BaseTask.clusters`) count as one observation; without such a latent only equal rows do.
        """
        name = getattr(getattr(self.derive, "__self__", None), "clusters", "")
        return (self.latents[name] if name else self.inputs).unique(dim=0, return_inverse=True)[1]

    def prompt_labels(self) -> dict[str, Any]:
        """Coordinates of a result along `prompt`: numbers, and clusters."""
        return {"prompt": range(len(self)), "cluster": ("prompt", self.clusters.tolist())}

    @property
    def has_vectors(self) -> bool:
        """True if inputs and targets are vectors; otherwise they are tokens."""
        return self.inputs.is_floating_point()

    @property
    def loss_unit(self) -> str:
        """The unit of the result of `core.metrics.loss`."""
        return loss_unit(vectors=self.has_vectors)

    @cached_property
    def latents(self) -> Mapping[str, Tensor]:
        """The generator's knowledge about each sequence: tensors whose first axis is the batch."""
        return {**self.known, **(self.derive(self) if self.derive else {})}

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(
            self,
            inputs=change(self.inputs),
            targets=change(self.targets),
            scored=change(self.scored),
            weights=None if self.weights is None else change(self.weights),
            known={name: change(value) for name, value in self.known.items()},
            lengths=None if self.lengths is None else change(self.lengths),
        )

    def select(self, rows: Tensor | slice) -> "Batch":
        """The rows that a boolean mask, an index tensor or a slice picks, in its order."""
        return self._map(lambda value: value[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self._map(lambda value: value.to(device))


T = TypeVar("T", Batch, Tensor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Named(Generic[T]):
    """A batch or a tensor that an intervention refers to, by its name in results. Do not change it any more.

    >>> ms.Mean(site=ms.Site(kind="z", layer=0), source=ms.Named(name="unseen", value=batch)).source.name
    'unseen'
    """

    name: str
    value: T

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits of the content's hash."""
        value = self.value
        tensors = [value] if isinstance(value, Tensor) else [value.inputs, value.targets, value.scored]
        if isinstance(value, Batch) and value.lengths is not None:
            tensors.append(value.lengths)
        content = hashlib.sha256()
        for tensor in tensors:
            content.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
            content.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return content.hexdigest()[:8]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def __str__(self) -> str:
        return f"{self.name} ({self.digest})"

    __repr__ = __str__


def check_is_batch(given: object, argument: str = "batch") -> None:
    """Refuse sequences that are no batch, such as tokens alone."""
    if not isinstance(given, Batch):
        way_out = "task.sample makes one, ms.prompts one of texts, ms.Batch(inputs=, targets=, scored=) one of tokens"
        raise InputError(f"{argument} must be an ms.Batch; got a {type(given).__name__}: {way_out}")
