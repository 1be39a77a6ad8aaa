"""N1: the feed-forward layer learns the noise token from O(1) samples, attention from O(N).

The toy model is that of `analyses.noise_samples`. What is learned when, and that the length of contexts stays while N
grows, is our reading of an informal theorem; the other reading, fresh contexts, and longer contexts are factors.
"""

from mnemoscope import CLAIMS
from mnemoscope.claims import Case, Explanation, Measured, Quantity, case, controls, most, table
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.in_context_bigrams.analyses.noise_samples import LENGTH, NOISE, SIZES, On, exponent, scaling
from mnemoscope.systems.in_context_bigrams.claim_parts import noisy_recall

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
_EXPLANATION = Explanation(
    procedure="No trained model is involved. In a toy model a context has 8 tokens, whatever N is, and ends with the "
    "trigger; the next token is the noise token with probability ½, else the context's output, and one of the two also "
    "followed the trigger earlier. All else is uniform over the N − 1 other tokens. The feed-forward part reads the "
    "trigger, the attention part the mean of the context, one-hot, and each takes one gradient step from zero on n "
    "samples. n(N) is the smallest n, in steps of a fourth of an octave, at which in nine of ten out of 40 repetitions "
    "the noise token has the strictly largest logit for nine tenths of the inputs: for the trigger alone, or "
    "(attention) of the N tokens that are averaged.",
    quantities={
        "feed_forward": Quantity(
            words="the exponent with which the samples that the feed-forward part needs grow with N", formula=_SLOPE
        ),
        "attention": Quantity(words="the same for the attention part", formula=_SLOPE),
        "attention_large": Quantity(
            words="the same for the attention part from N = 64 on, where a context has few of the tokens"
        ),
    },
    margins="O(1) is an exponent of 0, O(N) one of 1. The margins are nearer to the one than to the other by half the "
    "distance to the middle.",
    limits="It shows how the need of one step grows in this range of N. It does not show what holds as N goes to "
    "infinity, nor anything of a trained model. When something is learned, and that contexts do not grow with N, is "
    "our reading of an informal theorem.",
)
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
    explanation=_EXPLANATION,
    factors={"noise": (0.3, 0.7), "length": (16, 64), "on": ("contexts",)},
    develops=False,
)
CLAIMS.add(CLAIM.id, CLAIM)
