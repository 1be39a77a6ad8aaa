"""A converted language model against its source: the largest difference between their log-probabilities.

A conversion reads some fields of a configuration and ignores the others. A model that uses an ignored field would load
without a word and compute something else. So both models run on the same few tokens: no field has to be known. This
does not show a difference that only other tokens or longer sequences would bring out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

TOLERANCE = 1e-3
"""Largest difference of log-probabilities in float32 and float64: what the documentation promises."""
LARGE = 2_000_000_000
"""Parameters from which a model in half precision is not widened for the comparison: two copies take 16 GB."""
_LENGTH = 24
_BEYOND = 16
"""Tokens past the point from which a model attends differently."""
_TURNING_POINTS = ("window", "position", "context", "ctx", "chunk", "length")
"""Words in the names of fields that say from which length on a model does something else."""


def compared_dtype(theirs: Any, dtype: torch.dtype) -> torch.dtype:
    """The precision in which a model is compared before it gets its own.

    Half precision rounds logits by more than wrong conversions change them, and widening loses nothing. So models of
    half precision are compared in float32 unless they are large.
    """
    if torch.finfo(dtype).bits >= 32 or sum(value.numel() for value in theirs.parameters()) > LARGE:
        return dtype
    return torch.float32


def tolerance(dtype: torch.dtype) -> float:
    """The largest difference that counts as rounding: 1e-3, or 64 units of the last place at one in half precision.

    Logits of half precision lie between 16 and 64 and are rounded to a 256th (bfloat16) or 2,048th of that in each of
    two models. The values that they are computed from are rounded too.
    """
    return TOLERANCE if torch.finfo(dtype).bits >= 32 else 64 * torch.finfo(dtype).eps


@torch.no_grad()
def largest_difference(theirs: nn.Module, model: nn.Module, tokens: Int[Tensor, "batch pos"]) -> float:
    """The largest difference of log-probabilities over all positions and tokens; NaN if one of them is NaN."""
    worst = torch.zeros(())
    for row in tokens.split(1):  # one at a time: a long one has gigabytes of logits
        expected = theirs(row).logits
        found = model(row)[..., : expected.shape[-1]]
        differences = found.float().log_softmax(-1) - expected.float().log_softmax(-1)
        worst = torch.maximum(worst, differences.abs().amax())  # keeps NaN
    return worst.item()


def tokens_to_compare(theirs: Any, tokenizer: Any, n_ctx: int) -> Int[Tensor, "batch pos"]:
    """Two sequences of random tokens, none of them special; one where it is long.

    They have 24 tokens, or go 16 beyond the longest window, or similar length, below `n_ctx` in the configuration. A
    window that `n_ctx` does not exceed, such as Mistral's 4,096 at the default of 1,024, never closes: no test needed.
    """
    points = [_LENGTH - _BEYOND, *_turning_points(theirs.config.to_dict(), n_ctx)]
    length = min(n_ctx, max(points) + _BEYOND)
    n_tokens = min(theirs.config.vocab_size, len(tokenizer))
    special = {number for number in tokenizer.all_special_ids if number is not None}
    ordinary = torch.tensor([number for number in range(n_tokens) if number not in special] or [0])
    drawn = torch.randint(
        len(ordinary), (2 if length <= 512 else 1, length), generator=torch.Generator().manual_seed(0)
    )
    return ordinary[drawn]


def _turning_points(config: Mapping[Any, Any], n_ctx: int) -> Iterator[int]:
    """Lengths below `n_ctx` in a configuration and its parts."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _turning_points(value, n_ctx)
        elif isinstance(value, int) and 0 < value < n_ctx and any(word in str(name) for word in _TURNING_POINTS):
            yield value


def configured(theirs: Any) -> str:
    """Fields of a configuration that differ from the defaults of its model type, in words."""
    aside = ("architectures", "transformers_version", "dtype", "model_type", "_name_or_path")
    usual, found = type(theirs.config)().to_dict(), theirs.config.to_dict()
    changed = {name: value for name, value in found.items() if name not in aside and value != usual.get(name)}
    return ", ".join(f"{name}={value}" for name, value in changed.items() if not name.endswith("token_id"))
