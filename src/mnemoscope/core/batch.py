"""A batch of sequences together with everything that its generator knows about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Inputs = Int[Tensor, "batch pos"] | Float[Tensor, "batch pos d_input"]
"""Tokens, or vectors."""
Targets = Int[Tensor, "batch pos"] | Float[Tensor, "batch pos d_output"]
"""The same of what is due."""
CHUNK = 1024
"""Sequences in one forward pass; on a CPU larger ones leave the cache and take more than twice as long."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Inputs, targets and latents of a number of sequences, of tokens or of vectors.

    Attributes:
        inputs: Tokens that the model sees, or vectors.
        targets: The next token at every position, or the vector that is due there.
        scored: Where loss and metrics look.
        weights: Probability of each row under the task's distribution (an enumeration); None: every row counts the
            same.
        known: Latents that only the generator knows, batch axis first.
        derive: Latents that follow from the inputs; computed when first asked for.
        parts: Named parts of target vectors that are reported apart; none for tokens.
    """

    inputs: Inputs
    targets: Targets
    scored: Bool[Tensor, "batch pos"]
    weights: Float[Tensor, " batch"] | None = None
    known: Mapping[str, Tensor] = field(default_factory=dict)
    derive: Callable[["Batch"], Mapping[str, Tensor]] | None = None
    parts: Mapping[str, slice] = field(default_factory=dict)

    @property
    def has_vectors(self) -> bool:
        """Whether inputs and targets are vectors; otherwise they are tokens."""
        return self.inputs.is_floating_point()

    @property
    def loss_unit(self) -> str:
        """Of what `core.metrics.loss` gives."""
        return "squared error" if self.has_vectors else "nats"

    @cached_property
    def latents(self) -> Mapping[str, Tensor]:
        """What the generator knows about each sequence: tensors whose first axis is the batch."""
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
        )

    def select(self, rows: Tensor | slice) -> "Batch":
        """The rows that a boolean mask, an index tensor or a slice picks, in its order."""
        return self._map(lambda value: value[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return self._map(lambda value: value.to(device))
