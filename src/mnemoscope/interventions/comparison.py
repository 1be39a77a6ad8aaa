"""Two tensors that a law says are equal, and by how much they are not."""

from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDING = 4.0
"""Changes of so many times the precision of a row are rounding."""
_HALF = 0.5


class DoesNotApplyError(Exception):
    """Raised by a check where the law says nothing about the model."""


class RefusedError(Exception):
    """Raised where the model itself raised an exception; the message is its first line."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two tensors that a law says are equal.

    Attributes:
        point: The hook point, or another name for what was compared.
        got: The value found.
        wanted: The value that the law demands.
        without: The value without the write that the law is about; a write may be small beside what it is added to.
        exact: True if every bit must be the same; else they agree up to the subject's tolerance.
        tolerance: Largest share of the size of `wanted` by which they may differ; None: the subject's.
    """

    point: str
    got: Tensor
    wanted: Tensor
    without: Tensor | None = None
    exact: bool = False
    tolerance: float | None = None

    @property
    def amount(self) -> float:
        """Largest difference as a share of the largest entry of `wanted`; infinite where shapes or NaN differ."""
        got, wanted = (x.detach().double().cpu() for x in (self.got, self.wanted))
        if got.shape != wanted.shape:
            return float("inf")
        same = (got == wanted) | (got.isnan() & wanted.isnan())
        if bool(same.all()):
            return 0.0
        size = wanted[wanted.isfinite()].abs().max() if bool(wanted.isfinite().any()) else torch.tensor(0.0)
        difference = (got - wanted)[~same].abs().nan_to_num(nan=float("inf"))
        return float(difference.max() / size.clamp(min=1e-30))

    @property
    def missing(self) -> float:
        """Median share of the change by the write that `got` lacks: 1 where a write is ignored, 0 where none is."""
        if self.without is None:
            return 0.0
        change = (self.wanted - self.without).abs()
        moved = change > _ROUNDING * torch.finfo(change.dtype).eps * self.wanted.abs().amax(-1, keepdim=True)
        shares = ((self.got - self.wanted).abs() / change)[moved].double()
        return float(shares.median()) if len(shares) else 0.0

    def breach(self, tolerance: float) -> float:
        """The amount by which the two are not equal; 0 where they are."""
        return self.amount if self.amount > tolerance else self.missing if self.missing >= _HALF else 0.0
