"""M4-mlp: so does an MLP with one hidden layer.

Sizes were chosen on draws from 1000 on. Under the factor `n_outputs` there are 32 outputs, so that an answer is worth
as many bits at every size.
"""

from mnemoscope import CLAIMS
from mnemoscope.claims import controls
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
    explained,
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

    `largest` is the largest dimension; 256 is published. The hidden layer is α times as wide as the input. Without
    `n_outputs` there are as many outputs as inputs.
    """
    found = mlp_capacity(half_powers(LEAST, largest), draws=[draw], alpha=alpha, n_outputs=n_outputs)
    return effects(found)


_EXPLANATION = explained(
    "An MLP ReLU(e W₁) W₂ of width m = αd, α = 1, is trained by Adam (rate .03) on all of them until 99 % are right, "
    "for 4,096 steps at most.",
    sizes="2³ to 2⁴·⁵ by half powers",
    parameters="αd², as published, half of what is trained",
    limits="It shows what one optimiser finds in one number of steps, not how many associations an MLP could hold. "
    "Published are d up to 2⁸ and 2¹⁵ steps, so that a slope that fails here may do so because of these sizes.",
)
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
    explanation=_EXPLANATION,
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
