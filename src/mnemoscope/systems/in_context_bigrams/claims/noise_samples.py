"""N1: the feed-forward layer learns the noise token from O(1) samples, attention from O(N).

The toy model is that of `analyses.noise_samples`. What is learned when, and that the length of contexts stays while N
grows, is our reading of an informal theorem; the other reading, fresh contexts, and longer contexts are factors.
"""

from mnemoscope import CLAIMS
from mnemoscope.claims import Case, Measured, case, controls, most, table
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.in_context_bigrams.analyses.noise_samples import LENGTH, NOISE, SIZES, On, exponent, scaling
from mnemoscope.systems.in_context_bigrams.claim_parts import TEXTS, noisy_recall

_LARGE = 64
CONSTANT, LINEAR = 0.25, 0.75
"""Nearer to 0 than to 1, and the reverse, by half the distance to the middle."""


def measure(draw: int, *, length: int = LENGTH, noise: float = NOISE, on: On = "tokens") -> dict[str, float]:
    """The exponents of both parts; arguments as for `scaling`."""
    found = scaling(draw, length=length, noise=noise, on=on)
    large = found.samples.sel(part="attention", n_tokens=slice(_LARGE, None))
    return {
        **{str(part): float(found.exponent.sel(part=part)) for part in found.part.values},
        "attention_large": exponent(large.n_tokens.values.tolist(), large.values.tolist()),
    }


def _growing(name: str, feed_forward: float, attention: float) -> Case:
    """A planted outcome: ten samples at N = 1, and powers of N."""
    powers = {"feed_forward": feed_forward, "attention": attention}
    return table(
        name, {"draw": {part: exponent(SIZES, [10 * n**power for n in SIZES]) for part, power in powers.items()}}
    )


def long_contexts(number: int) -> dict[str, Measured]:
    """A control: contexts as long as the largest N, so that a sample has most of the tokens."""
    return {"draw": measure(FIRST_CONTROL_SEED + number, length=max(SIZES))}


_SLOPE = "least-squares slope of log n(N) over log N, N = 8, 16, 32, 64, 128, 256"
CLAIM = noisy_recall(
    id="N1",
    statement="The feed-forward layer learns the noise token from O(1) samples, attention from O(N).",
    source="Chen, Bruna & Bietti 2024, How Truncating Weights Improves Reasoning in Language Models",
    parts=(
        most("feed_forward", "below", CONSTANT, "exponent of N"),
        most("attention", "above", LINEAR, "exponent of N"),
    ),
    replicate="draw",
    controls=controls(
        positive=(_growing("constant and linear", 0.0, 1.0),),
        negative=(
            _growing("both linear", 1.0, 1.0),
            _growing("both constant", 0.0, 0.0),
            _growing("the other way round", 1.0, 0.0),
            _growing("by the margins", CONSTANT, LINEAR),
            case("long contexts", long_contexts, n=1),
        ),
    ),
    measure=measure,
    explanation=TEXTS.explain("N1", large=_LARGE),
    factors={"noise": (0.3, 0.7), "length": (16, 64), "on": ("contexts",)},
    develops=False,
)
CLAIMS.add(CLAIM.id, CLAIM)
