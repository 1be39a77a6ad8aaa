"""How well predicted numbers agree with actual ones, from fit_sums over cells.

Both are free of a constant that does not matter (centred over keys, or over logits), so that their mean is zero, which
is also what no prediction at all says:

- `r2` = 1 - sum (actual - predicted)^2 / sum actual^2, for the prediction as it stands: below zero where it is worse
  than none;
- `correlation`, which forgives the size;
- `slope` of actual on predicted, 1 if the size is right;
- `share` = sum actual * predicted / sum actual^2: shares of parts add up to the share of their sum;
- `actual_rms`, the root mean square of the actual numbers, in their unit.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.batch import Batch

NEGLIGIBLE = 1e-5
"""Root mean square of actual numbers up to which there is nothing to be predicted."""


def fit_sums(
    actual: Float[Tensor, "cell *rows"], predicted: Float[Tensor, "cell *rows"], weight: Float[Tensor, "cell *rows"]
) -> Float[Tensor, "4 cell"]:
    """Weighted fit_sums of actual^2, predicted^2, actual * predicted and one; those of several batches add up."""
    pairs = (actual * actual, predicted * predicted, actual * predicted, torch.ones_like(actual))
    return torch.stack([(weight * values).flatten(1).sum(1) for values in pairs])


def fit(totals: Float[Tensor, "4 *cells"]) -> dict[str, Float[Tensor, "*cells"]]:
    """`r2`, `correlation`, `slope`, `share` and `actual_rms` from `sums`.

    NaN where the actual numbers are negligible (a root mean square of at most 1e-5); correlation and slope also where
    everything predicted is zero.
    """
    squares, predicted, products, n = totals
    rms = (squares / n).sqrt()
    actual = squares.masked_fill(rms <= NEGLIGIBLE, torch.nan)
    return {
        "r2": (2 * products - predicted) / actual,
        "correlation": products / (actual * predicted).sqrt(),
        "slope": products / predicted + 0 * actual,
        "share": products / actual,
        "actual_rms": rms,
    }


def row_weight(batch: Batch) -> Float[Tensor, " batch"]:
    """How much each sequence counts: its probability, or one."""
    return torch.ones(len(batch), dtype=torch.double) if batch.weights is None else batch.weights.double()
