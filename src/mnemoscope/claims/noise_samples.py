"""N1: the feed-forward layer learns the noise bigram after O(1) samples, attention needs O(N), N the vocabulary size.

Refuted if the number of samples that the feed-forward matrix needs grows with N with an exponent of .25 or more, or
that of attention with .75 or less. One gradient step from zero, orthonormal embeddings, attention uniform; a draw is a
set of samples (`analyses.gradient_memories.noise_samples`, which says what attention has to learn and why). Exponents
are slopes of log samples over log N, N from 8 to 256.

Rivals: attention has to predict the noise token from a single token that is not the trigger (N1-token); attention needs
no more samples for a larger vocabulary either, since the mean of the context always holds the trigger (N1-neither).

It shows how one step scales for these two readings. It is not a test of the theorem's constants, nor of what later
steps or a learned attention pattern do.
"""

from functools import partial

import numpy as np
import xarray as xr

from mnemoscope.analyses.gradient_memories.noise_samples import READERS, SIZES, exponents, samples_needed
from mnemoscope.core.claim import CLAIMS, Claim
from mnemoscope.core.criteria import Control, Measured, Part

CONSTANT, LINEAR = 0.25, 0.75
_UNIT = "exponent of N"


def measure(draw: int, *, length: int = 16, alpha: float = 0.5) -> dict[str, float]:
    """Exponents by reader, and the samples that each needs for the smallest and for the largest vocabulary.

    Args:
        draw: Number of the draw.
        length: Of the contexts.
        alpha: Probability of the noise token.

    Raises:
        InputError: The context is too short, or alpha is no probability.
    """
    return _effects(samples_needed(seed=draw, length=length, alpha=alpha).needed)


def _effects(needed: xr.DataArray) -> dict[str, float]:
    slopes = exponents(needed)
    ends = {f"{name} at {n}": float(needed.sel(reader=name, n=n)) for name in READERS for n in (SIZES[0], SIZES[-1])}
    return {**{name: float(slopes.sel(reader=name)) for name in READERS}, **ends}


def planted(case: int, *, powers: tuple[float, float, float]) -> dict[str, Measured]:
    """A control: samples that grow with given powers of N, by reader."""
    needed = 6 * np.power.outer(np.array(SIZES, dtype=float), powers).T
    coords = {"reader": list(READERS), "n": list(SIZES)}
    return {"draw": _effects(xr.DataArray(needed, dims=("reader", "n"), coords=coords))}


def _control(name: str, kind: str, *powers: float) -> Control:
    return Control(name=name, kind=kind, plant=partial(planted, powers=powers), n=1)  # type: ignore[arg-type]


_FLAT = Part(name="feed_forward", quantifier="most", margin=CONSTANT, direction="below", unit=_UNIT)
_AT_MARGIN = _control("attention at the margin", "negative", 0, LINEAR, LINEAR)
_BOTH_GROW = _control("both grow", "negative", 1, 1, 1)
_NEITHER = ("neither grows", 0.0, 0.0, 0.0)


def _rival(name: str, statement: str, parts: tuple[Part, ...], controls: tuple[Control, ...]) -> Claim:
    return Claim(
        id=f"N1-{name}",
        system="noisy-recall",
        statement=statement,
        source="rival of N1",
        parts=parts,
        replicate="draw",
        controls=controls,
        measure=measure,
        develops=False,
    )


CLAIM = Claim(
    id="N1",
    system="noisy-recall",
    statement="The feed-forward layer learns the noise bigram after O(1) samples, attention needs O(N).",
    source="Chen, Bruna & Bietti 2024",
    parts=(_FLAT, Part(name="attention", quantifier="most", margin=LINEAR, unit=_UNIT)),
    replicate="draw",
    rivals=(
        _rival(
            "token",
            "The noise bigram takes O(1) samples in the feed-forward layer, and O(N) in attention to a single token.",
            (_FLAT, Part(name="attention_to_token", quantifier="most", margin=LINEAR, unit=_UNIT)),
            (_control("one token grows", "positive", 0, 0, 1), _control(_NEITHER[0], "negative", *_NEITHER[1:])),
        ),
        _rival(
            "neither",
            "Attention that reads the mean of the context learns the noise bigram after O(1) samples as well.",
            (_FLAT, Part(name="attention", quantifier="most", margin=CONSTANT, direction="below", unit=_UNIT)),
            (_control(_NEITHER[0], "positive", *_NEITHER[1:]), _AT_MARGIN),
        ),
    ),
    controls=(
        _control("attention grows", "positive", 0, 1, 1),
        _control(_NEITHER[0], "negative", *_NEITHER[1:]),
        _AT_MARGIN,
        _BOTH_GROW,
    ),
    measure=measure,
    factors={"length": (4, 32), "alpha": (0.25,)},
    develops=False,
)
CLAIMS.add(CLAIM.id, CLAIM)
