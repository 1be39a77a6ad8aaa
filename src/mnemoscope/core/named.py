"""Tensors and batches as parts of values: equal where name and content are."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from torch import Tensor

from mnemoscope.core.batch import Batch

T = TypeVar("T", Batch, Tensor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Named(Generic[T]):
    """A batch or a tensor that an intervention refers to, by its name in results. Do not change it any more."""

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
            content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return content.hexdigest()[:8]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def __str__(self) -> str:
        return f"{self.name} ({self.digest})"

    __repr__ = __str__
