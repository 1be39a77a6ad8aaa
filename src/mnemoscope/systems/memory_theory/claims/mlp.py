"""M4-mlp: so does an MLP with one hidden layer.

Refuted if, in most draws, the slope of log(N log N) against the logarithm of the parameters differs from the published
1 by more than .1, or if N ln N at the largest size is less than a quarter or more than four times their number. The
MLP has width m = αd and counts as α·d² parameters, as published; trained are twice as many. Each input has an
output of its own; under the factor `n_outputs` there are 32, so that an answer is worth as many bits at every size.
Rivals as for M4.

Judged are α = 1, d from 2^3 to 2^4.5 by half powers and 4,096 steps of rate .03; published are d up to 2^8 and 2^15
steps, so that a slope that fails here may do so because of these sizes, which were chosen on draws from 1000 on.

It shows what one optimiser finds in one number of steps. It does not show how many associations an MLP could hold.
"""

from mnemoscope import CLAIMS
from mnemoscope.judging import controls
from mnemoscope.systems.memory_theory.analyses.capacity import mlp_capacity
from mnemoscope.systems.memory_theory.claim_parts import (
    AS_PUBLISHED,
    FEWER,
    LARGEST_MLP,
    LEAST,
    LIKE_PARAMETERS,
    LIKE_WIDTH,
    about_capacity,
    effects,
    half_powers,
    tables,
)


def measure(
    draw: int,
    *,
    largest: int = LARGEST_MLP,
    alpha: float = 1.0,
    n_outputs: int | None = None,
) -> dict[str, float]:
    """Effects of a draw (`claim_parts`), and what is stored at each d.

    Args:
        draw: Number of the draw.
        largest: Largest dimension; 256 is published.
        alpha: Width of the hidden layer by that of the input.
        n_outputs: How many outputs there are; None: as many as inputs.

    Raises:
        InputError: There are fewer than two dimensions or outputs, or no neuron.
    """
    found = mlp_capacity(half_powers(LEAST, largest), draws=[draw], alpha=alpha, n_outputs=n_outputs)
    return effects(found)


_PLANTED = tables(half_powers(LEAST, LARGEST_MLP))
_M4_MLP = about_capacity(
    id="M4-mlp",
    statement="With random embeddings a trained MLP stores about as many associations as it has parameters: "
    "N log N grows like αd².",
    parts=AS_PUBLISHED,
    controls=controls(
        positive=(_PLANTED["law"],),
        negative=(_PLANTED["sixteenth"], _PLANTED["parameters"], _PLANTED["width"]),
    ),
    measure=measure,
    factors={"n_outputs": (32,)},
)
M4_MLP = _M4_MLP.against(
    _M4_MLP.rival(
        "plain",
        "Capacity grows like the number of parameters, without a logarithm.",
        parts=LIKE_PARAMETERS,
        controls=controls(positive=(_PLANTED["parameters"],), negative=(_PLANTED["law"], _PLANTED["width"])),
    ),
    _M4_MLP.rival(
        "width",
        "Capacity grows like the width of the MLP.",
        parts=LIKE_WIDTH,
        controls=controls(positive=(_PLANTED["width"],), negative=(_PLANTED["law"], _PLANTED["parameters"])),
    ),
    _M4_MLP.rival(
        "fewer",
        "At the largest size fewer than a quarter as many associations are stored as there are parameters.",
        parts=FEWER,
        controls=controls(positive=(_PLANTED["sixteenth"],), negative=(_PLANTED["parameters"],)),
    ),
)
CLAIMS.add(M4_MLP.id, M4_MLP)
