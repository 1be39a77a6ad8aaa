"""M4-mlp: so does an MLP with one hidden layer.

Sizes were chosen on draws from 1000 on. Under the factor `n_outputs` there are 32 outputs, so that an answer is worth
as many bits at every size.
"""

from mnemoscope import CLAIMS
from mnemoscope.claims import controls
from mnemoscope.systems.memory_theory.capacity import mlp_capacity
from mnemoscope.systems.memory_theory.claim_parts import (
    AS_PUBLISHED,
    FEWER,
    LARGEST_MLP,
    LEAST,
    LIKE_PARAMETERS,
    LIKE_WIDTH,
    TEXTS,
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

    `largest` is the largest dimension; 256 is published. The hidden layer is α times as wide as the input. Without
    `n_outputs` there are as many outputs as inputs.
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
    explanation=TEXTS.explain("M4-mlp"),
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
