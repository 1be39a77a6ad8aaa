"""M1, M2 and M3: what gradient steps from zero store in associative memories.

Sizes and step sizes (`analyses.gradient_memories.three_steps.SETTINGS`) were chosen on draws from 100 on.
"""

import math
from functools import partial
from typing import Any

from mnemoscope import CLAIMS
from mnemoscope.claims import EFFECT, Explanation, Measured, Quantity, case, controls, most
from mnemoscope.models import FIRST_CONTROL_SEED
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.one_step import (
    against_autograd,
    recalled_after_one_step,
)
from mnemoscope.systems.in_context_bigrams.analyses.gradient_memories.three_steps import ORDER, three_steps
from mnemoscope.systems.in_context_bigrams.claim_parts import birth

N_INPUTS, WIDTH, NARROW = 64, 128, 32
RECALLED = 0.9
_RECALL = "share recalled"


def measure_gradient(draw: int) -> dict[str, float]:
    """Logarithm of the largest relative difference between the formula and autograd over eight random problems."""
    return {EFFECT: _digits(float(against_autograd(seed=draw).difference.max()))}


def _digits(difference: float) -> float:
    """Decimal logarithm; of nothing, that of less than float64 can tell."""
    return math.log10(max(difference, 1e-18))


def measure_step(draw: int, *, d: int = WIDTH) -> dict[str, float]:
    """Recall after one step with embeddings of width d (`effect`), and with narrow ones (`narrow`)."""
    widths = {EFFECT: d, "narrow": NARROW}
    return {name: recalled_after_one_step(N_INPUTS, width, seed=draw) for name, width in widths.items()}


def measure_steps(draw: int, *, embeddings: str = "random") -> dict[str, float]:
    """Recall of the three matrices after one step each, and the model's accuracy at repeated triggers."""
    return _recalls(draw, embeddings=embeddings)


def measure_reversed(draw: int, *, embeddings: str = "random") -> dict[str, float]:
    """The same after the same steps in the reverse order; arguments and errors as for `measure_steps`."""
    return _recalls(draw, embeddings=embeddings, order=ORDER[::-1])


def _recalls(draw: int, **options: Any) -> dict[str, float]:
    found = three_steps(seed=draw, **options)
    return {**{name: float(found.recall.sel(memory=name)) for name in ORDER}, "accuracy": float(found.accuracy)}


def formula(number: int) -> dict[str, Measured]:
    """A control: the right formula on other problems."""
    return {"draw": measure_gradient(FIRST_CONTROL_SEED + number)}


def without_predictions(number: int) -> dict[str, Measured]:
    """A control: a wrong formula, which leaves out what the model predicts."""
    found = against_autograd(seed=FIRST_CONTROL_SEED + number)
    return {"draw": {EFFECT: _digits(float(found.difference_without_predictions.max()))}}


def stored(number: int, *, d: int, permuted: bool = False) -> dict[str, Measured]:
    """A control: one step in d dimensions, scored on what it stores or on permuted answers."""
    share = recalled_after_one_step(N_INPUTS, d, seed=FIRST_CONTROL_SEED + number, permuted=permuted)
    return {"draw": {EFFECT: share, "narrow": share}}


def planted_steps(number: int, *, permuted: bool = False, backwards: bool = False) -> dict[str, Measured]:
    """A control: three steps with orthonormal embeddings, with true or permuted targets, in either order."""
    order = ORDER[::-1] if backwards else ORDER
    draw = FIRST_CONTROL_SEED + number
    return {"draw": _recalls(draw, embeddings="orthonormal", permuted=permuted, order=order)}


_of_draws = partial(birth, source="Bietti et al. 2023", replicate="draw", develops=False)
_ALL_THREE = tuple(most(name, "above", RECALLED, _RECALL) for name in ORDER)
_WIDE = case("1024 dimensions", partial(stored, d=1024))
_THREE_STEPS = case("orthonormal embeddings", planted_steps, n=1)
_FORMULA = Explanation(
    procedure="Eight random problems are drawn: 2 to 24 inputs z and outputs k, their embeddings e_z and u_k of 2 to "
    "24 dimensions, a matrix W, and a distribution p(z, k). p_W(k|z) is the softmax of u_kᵀ W e_z over k. The formula, "
    "F = Σ_k E_z[(p_W(k|z) − p(k|z)) u_k e_zᵀ], is compared in float64 with what automatic differentiation gives for "
    "the mean cross-entropy, A.",
    quantities={
        EFFECT: Quantity(
            words="the decimal logarithm of the largest difference of an entry, as a share of the largest entry, over "
            "the eight problems",
            formula="log₁₀ max over problems of (max|F − A| ÷ max|A|)",
        )
    },
    margins="−9 is a difference of a thousandth of a millionth; float64 rounds at about 1e-16. It is a logarithm since "
    "criteria take differences below 1e-6 for rounding; no difference at all is written as −18.",
    limits="It shows that the formula is the gradient, to rounding. It shows nothing about training.",
)
_ONE_STEP = Explanation(
    procedure="64 inputs and 64 outputs get random unit embeddings e_z and u_k of d dimensions, and every input z an "
    "answer f(z) drawn among the outputs. From W = 0 one gradient step is taken on the cross-entropy over all inputs, "
    "each equally likely. An input is recalled if its answer has the largest score of all outputs.",
    quantities={
        EFFECT: Quantity(
            words="the share of inputs that are recalled with 128 dimensions",
            formula="R(d) = share of z with argmax over k of u_kᵀ W e_z = f(z); d = 128",
        ),
        "narrow": Quantity(words="the same with 32 dimensions, half of the number of inputs", formula="R(32)"),
    },
    margins="Of 64 inputs, more than .99 are all of them; less than .9 means that seven or more are lost. Guessing "
    "gives 1/64.",
    limits="It shows what one step stores when embeddings are nearly orthonormal, and where they no longer are. It is "
    "not about training with many small steps, which correct mistakes.",
)
_RIGHT = "the share of {} that {}"
_STEPS = Explanation(
    procedure="A model of two attention layers of one head and no MLP, 1,024 wide with frozen random embeddings, "
    "starts with W_O of layer 2 and W_K of both layers at zero. Each of the three takes one gradient step, in the "
    "order W_O of layer 2, W_K of layer 2, W_K of layer 1 (M3-order: the reverse), on 8,192 fresh sequences of 32 "
    "tokens out of 16, with one trigger each; the loss is taken where the trigger stands again, not before position 12 "
    "(counted from 0). An association is recalled if its right output scores highest among those of all associations "
    "of its matrix. Token t has the embedding e_t, the copy c_t = e_t W_V W_O of layer 1 and the unembedding u_t; p_i "
    "is position i; vectors are rows.",
    quantities={
        "output": Quantity(
            words=_RIGHT.format("tokens", "W_O of layer 2 maps to themselves"),
            formula="share of t with argmax over s of e_t W_V W_O u_sᵀ = t",
        ),
        "match": Quantity(
            words=_RIGHT.format("tokens", "W_K of layer 2 leads to their copy through layer 1"),
            formula="share of t with argmax over s of e_t W_Q W_Kᵀ c_sᵀ = t",
        ),
        "previous": Quantity(
            words=_RIGHT.format("positions 1 to 23", "W_K of layer 1 leads to the one before"),
            formula="share of i with argmax over j ≤ 22 of p_i W_Q W_Kᵀ p_jᵀ = i − 1",
        ),
        "accuracy": Quantity(
            words="the model's accuracy after the steps, where triggers stand again in 2,048 fresh sequences, not "
            "before position 12"
        ),
    },
    margins="Nine tenths of the associations; guessing among 16 tokens gives .06, among 23 positions .04.",
    limits="It shows what single steps store on the distribution that the argument is about. It is not about training "
    "with many small joint steps. Recall is not accuracy, which stands beside: memories can be right and too weak. The "
    "last eight positions are left out, since hardly any output that a later trigger asks for stands there.",
)
M1 = _of_draws(
    id="M1",
    statement="The gradient of a linear associative memory is the sum of (p_W(k|z) - p(k|z)) u_k e_z^T over z and k.",
    quantifier="every",
    margin=-9,
    direction="below",
    unit="log10 of the share of the largest entry",
    controls=controls(
        positive=(case("other problems", formula),), negative=(case("predictions left out", without_predictions),)
    ),
    prompts="enumerated",
    measure=measure_gradient,
    explanation=_FORMULA,
)
_M2 = _of_draws(
    id="M2",
    statement="One gradient step from zero stores a function of a token for nearly orthonormal embeddings.",
    quantifier="most",
    margin=0.99,
    unit=_RECALL,
    controls=controls(positive=(_WIDE,), negative=(case("permuted answers", partial(stored, d=1024, permuted=True)),)),
    measure=measure_step,
    explanation=_ONE_STEP,
    factors={"d": (32, 64, 256)},
)
M2 = _M2.against(
    _M2.rival(
        "capacity",
        "With half as many dimensions as inputs one step does not store the function.",
        parts=(most("narrow", "below", RECALLED, _RECALL),),
        controls=controls(positive=(case("16 dimensions", partial(stored, d=16)),), negative=(_WIDE,)),
    ),
)
_M3 = _of_draws(
    id="M3",
    statement="Three gradient steps, on W_O and W_K of layer 2 and on W_K of layer 1, recover the three memories.",
    parts=_ALL_THREE,
    controls=controls(
        positive=(_THREE_STEPS,),
        negative=(case("targets of other sequences", partial(planted_steps, permuted=True), n=1),),
    ),
    measure=measure_steps,
    explanation=_STEPS,
    factors={"embeddings": ("orthonormal",)},
)
M3 = _M3.against(
    _M3.rival(
        "order",
        "The same three steps in the reverse order recover the three memories.",
        parts=_ALL_THREE,
        controls=controls(
            positive=(_THREE_STEPS,), negative=(case("reversed", partial(planted_steps, backwards=True), n=1),)
        ),
        measure=measure_reversed,
    ),
)
for _claim in (M1, M2, M3):
    CLAIMS.add(_claim.id, _claim)
