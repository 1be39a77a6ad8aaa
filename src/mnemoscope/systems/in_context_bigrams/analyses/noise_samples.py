"""The number of samples from which one gradient step teaches a noise token to a feed-forward layer, and to attention.

Chen, Bruna & Bietti 2024: in a toy model of noisy recall the feed-forward layer learns the global association of
trigger and noise token after O(1) samples, attention after O(N), N the number of tokens. The simplest exact setting:

A context has T tokens. It ends with the trigger, which also stood once before, followed there by the context's output
o, or with probability alpha by the noise token. All else, o too, is uniform over the N - 1 other tokens. The target is
the noise token with probability alpha, else o. Embeddings are one-hot; a part reads x, the trigger (feed-forward) or
the mean of the context (attention, uniform), and gives the logits W x. From W = 0 one step of size 1 on n samples is

    W = mean over samples of (onehot(target) - 1 / (N + 1)) x^T.

Each column of W belongs to one input token. Its noise logit leads when, among the targets of the samples with this
token, no other target weighs as much as the noise token.

*Criterion*, one for both parts: the noise token has the strictly largest logit for at least nine tenths of the inputs
that carry the association. These are the trigger alone, or (attention, `on="tokens"`) each of the N tokens that
attention averages over. The trigger is in every sample. Another token has about 1 / N of the context's weight and,
while T is small beside N, is in about n T / N samples: it needs n of order N / T.

The informal theorem leaves open what "learned" means for a mean. With `on="contexts"` the inputs are fresh contexts
instead. There errors of the columns average out: the overlap of two contexts is 1 / N +- 1 / (T sqrt(N)), so that order
1 + N / T^2 samples are enough.

*Shows* how the samples that one step needs grow with N under either criterion, at a context length that stays. *Does
not show* the same for trained models, or for several steps; it is no proof and has not the theorem's assumptions. Where
T is many times N, every sample has every token, and attention is nearly as fast as the feed-forward layer under both
criteria.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from einops import einsum, reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import InputError, generator
from mnemoscope.core import in_range, one_of

PartName = Literal["feed_forward", "attention"]
PARTS: tuple[PartName, ...] = get_args(PartName)
On = Literal["tokens", "contexts"]
SIZES = (8, 16, 32, 64, 128, 256)
TRIGGER = 0
"""The noise token is number N, the last."""
LENGTH, NOISE = 8, 0.5
"""T is no larger than the smallest N, since nothing grows while every token is in the context."""
ENOUGH = 0.9
"""Share of inputs, and of repetitions."""
N_REPEATS, N_FRESH = 40, 64
LIMIT = 2**14
_PER_OCTAVE = 4


def contexts(
    n_samples: int, n_tokens: int, *, length: int, noise: float, stream: torch.Generator, n_repeats: int = 1
) -> tuple[Int[Tensor, "repeat sample pos"], Int[Tensor, "repeat sample"]]:
    """Contexts of T = `length` tokens and their targets, `n_samples` in each of some independent repetitions.

    The trigger is number 0 of the N = `n_tokens` tokens, the noise token is number N; alpha is `noise`.
    """
    in_range("n_tokens", n_tokens, 3, math.inf)
    in_range("length", length, 3, math.inf)
    in_range("noise", noise, 0, 1)
    shape = (n_repeats, n_samples)
    tokens = torch.randint(1, n_tokens, (*shape, length), generator=stream)
    output = torch.randint(1, n_tokens, shape, generator=stream)
    seen, target = (
        output.where(torch.rand(shape, generator=stream, dtype=torch.float32) >= noise, n_tokens) for _ in range(2)
    )
    first = torch.randint(0, length - 2, (*shape, 1), generator=stream)
    tokens.scatter_(-1, first, TRIGGER).scatter_(-1, first + 1, seen.unsqueeze(-1))
    tokens[..., -1] = TRIGGER
    return tokens, target


def logits(
    tokens: Int[Tensor, "repeat sample pos"],
    targets: Int[Tensor, "repeat sample"],
    n_tokens: int,
    part: PartName,
) -> Float[Tensor, "repeat output input"]:
    """W, the logits of every one-hot input after one step of size 1 from zero: minus the gradient, a mean over samples.

    Outputs and inputs are the N tokens and the noise token. For `attention` x is the mean of the context, else the last
    token.
    """
    read = _read(tokens, part)
    weight = torch.zeros(len(tokens), n_tokens + 1, n_tokens + 1)
    weight = _count(weight, read, targets) / read[0].numel()
    return weight - reduce(weight, "repeat output input -> repeat 1 input", "sum") / (n_tokens + 1)


def _read(tokens: Int[Tensor, "repeat sample pos"], part: PartName) -> Int[Tensor, "repeat sample read"]:
    one_of("part", part, PARTS)
    return tokens if part == "attention" else tokens[..., -1:]


def _count(
    weight: Float[Tensor, "repeat output input"],
    read: Int[Tensor, "repeat sample read"],
    targets: Int[Tensor, "repeat sample"],
) -> Float[Tensor, "repeat output input"]:
    """Adds, in place, how often a token was read in samples of a target: whole numbers, so that ties are exact."""
    n_repeats, size, _ = weight.shape
    row = torch.arange(n_repeats).unsqueeze(1) * size + targets
    cell = (row.unsqueeze(-1) * size + read).flatten()
    weight.view(-1).index_add_(0, cell, torch.ones(cell.shape))
    return weight


def _leads(scores: Float[Tensor, "repeat output input"]) -> Bool[Tensor, " repeat"]:
    """True where the last output, noise, is strictly ahead for enough of the inputs."""
    ahead = scores[:, -1] > scores[:, :-1].amax(1)
    return ahead.float().mean(1) >= ENOUGH


def samples_needed(
    n_tokens: int,
    part: PartName,
    draw: int,
    *,
    length: int = LENGTH,
    noise: float = NOISE,
    on: On = "tokens",
    n_repeats: int = N_REPEATS,
    limit: int = LIMIT,
) -> int:
    """The smallest number of samples, up to `limit`, at which nine in ten repetitions have learned the noise token.

    A repetition gets more and more samples; it is looked at whenever their number has grown by a fourth of an octave
    (by one while they are few). `on` says which inputs of attention count. Raises InputError where the limit is not
    enough.
    """
    one_of("on", on, get_args(On))
    in_range("n_repeats", n_repeats, 1, math.inf)
    in_range("limit", limit, 1, math.inf)
    stream = generator(draw, "noise samples", n_tokens, part)
    fresh, _ = contexts(N_FRESH, n_tokens, length=length, noise=noise, stream=stream, n_repeats=n_repeats)
    weight, so_far = torch.zeros(n_repeats, n_tokens + 1, n_tokens + 1), 0
    for n in _grid(limit):
        more = contexts(n - so_far, n_tokens, length=length, noise=noise, stream=stream, n_repeats=n_repeats)
        weight, so_far = _count(weight, _read(more[0], part), more[1]), n
        if float(_leads(_scores(weight, part, on, fresh)).float().mean()) >= ENOUGH:
            return n
    raise InputError(
        f"noise {noise} is not learned by {part} from {limit} samples ({n_tokens} tokens, length {length}); "
        "give more noise, longer contexts or a higher limit"
    )


def _grid(limit: int) -> list[int]:
    steps = range(int(_PER_OCTAVE * np.log2(limit)) + 1)
    return sorted({round(2 ** (step / _PER_OCTAVE)) for step in steps})


def _scores(
    weight: Float[Tensor, "repeat output token"],
    part: PartName,
    on: On,
    fresh: Int[Tensor, "repeat sample pos"],
) -> Float[Tensor, "repeat output input"]:
    """Logits of the inputs that count, up to a factor and to what all outputs have in common."""
    if part == "feed_forward":
        return weight[..., TRIGGER : TRIGGER + 1]
    if on == "tokens":
        return weight[..., :-1]
    held = torch.zeros(len(fresh), N_FRESH, weight.shape[-1])
    held.scatter_add_(-1, fresh, torch.ones(fresh.shape))
    return einsum(weight, held, "repeat output token, repeat input token -> repeat output input")


def exponent(sizes: Sequence[int], needed: Sequence[float]) -> float:
    """The least-squares slope of log samples over log N, from two sizes or more."""
    if len(set(sizes)) < 2 or len(needed) != len(sizes) or min(*sizes, *needed) <= 0:
        raise InputError(
            f"needed must give one positive number for each of two sizes or more, got {needed} for {sizes}"
        )
    return float(np.polyfit(np.log(sizes), np.log(needed), 1)[0])


def scaling(
    draw: int, *, sizes: Sequence[int] = SIZES, length: int = LENGTH, noise: float = NOISE, on: On = "tokens"
) -> xr.Dataset:
    """Samples needed by both parts, `samples` over (part, n_tokens), and their `exponent` over part."""
    needed = [[samples_needed(n, part, draw, length=length, noise=noise, on=on) for n in sizes] for part in PARTS]
    return xr.Dataset(
        {
            "samples": (("part", "n_tokens"), needed, {"unit": "samples"}),
            "exponent": ("part", [exponent(sizes, row) for row in needed], {"unit": "slope, log samples over log N"}),
        },
        coords={"part": list(PARTS), "n_tokens": list(sizes)},
        attrs={"length": length, "noise": noise, "on": on, "n_repeats": N_REPEATS, "draw": draw},
    )
