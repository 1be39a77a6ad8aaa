"""Parts that several claims share: configurations, factors, and controls in the place of v3."""

from collections.abc import Callable
from functools import partial

from mnemoscope import Claim, Configuration, HookedModel
from mnemoscope.claims import LEARNED, Case, case
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

REPEATS = PermutationLookup(repeat_ratio=0.3)
"""The task of v2 and v3, on which hand-set circuits are planted."""


def units(*presets: str, recipe: str = "quick") -> dict[str, Configuration]:
    """Configurations by preset."""
    return {name: Configuration(preset=name, recipe=recipe) for name in presets}


V3 = units("v3", recipe="published")
OTHER_TRAINING = {"recipe": ("quick",), "model.normalization": ("none",)}
"""Factors of claims about published models."""
tiny_recall = partial(Claim, system="tiny-recall", last_seed=47)
"""A claim that was judged before models of larger seeds were trained."""
asked_anew = partial(Claim, system="tiny-recall", first_seed=64, last_seed=79)
"""A claim whose criteria were written after models of smaller seeds had been looked at."""
asked_of_more = partial(Claim, system="tiny-recall", first_seed=80)
"""The same where one of sixteen seeds did not pass the gate, so that there could be no verdict: twenty others."""
GUESS = 0.25
"""Recall of a guess among the four values used before."""
RECALLS = (GUESS + 1) / 2
"""Recall from which a model is nearer to one that recalls than to one that guesses."""
of_v3 = partial(tiny_recall, units=V3, gate=LEARNED, n_replicates=32)
"""A claim about a mechanism of v3, where it has learned both skills."""


def as_v3(name: str, make: Callable[[], HookedModel], *, n: int = 4) -> Case:
    """A control in which a model with hand-set weights stands in the place of v3."""
    return case(name, set_by_hand("v3", make, REPEATS), n=n)


UNTRAINED = case("untrained", untrained(V3))
"""In the place of v3."""
SHOWN = (
    "A sequence x1 y1 … x5 y5 shows one of the 24 permutations that the seed keeps out of training (unseen mappings). "
    "Its last x is new (a fresh sequence) or an earlier one again (a repeat)."
)
"""What the prompts are; explanations begin with it."""
ELIMINATION_HEAD = (
    "The elimination head is the one whose output z, replaced by its mean over 2,048 sequences drawn as the task draws "
    "them over unseen mappings, costs most log-probability of the last answer on the 1,440 fresh sequences over one "
    "half of the unseen mappings."
)
"""How heads get their names."""
COMES_ACROSS = (
    "d is the logit of the right answer of a sequence minus that of its partner. The partner is run with the output z "
    "of head h taken from the sequence. The share of the difference that comes across is (mean d of the partner with "
    "this z − mean d of the partner) ÷ (mean d of the sequences − mean d of the partner), and 0 where the difference "
    "is no more than noise."
)
"""What a head carries between minimal pairs of prompts."""
