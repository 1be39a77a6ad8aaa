"""Parts that several claims share: configurations, factors, and controls in the place of v3."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from mnemoscope import Claim, Configuration, HookedModel
from mnemoscope.claims import LEARNED, Case, ClaimTexts, case
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
TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml", {"recalls": RECALLS})
"""The texts of the claims, from `texts.yaml`."""
of_v3 = partial(tiny_recall, units=V3, gate=LEARNED, n_replicates=32)
"""A claim about a mechanism of v3, where it has learned both skills."""


def as_v3(name: str, make: Callable[[], HookedModel], *, n: int = 4) -> Case:
    """A control in which a model with hand-set weights stands in the place of v3."""
    return case(name, set_by_hand("v3", make, REPEATS), n=n)


UNTRAINED = case("untrained", untrained(V3))
"""In the place of v3."""
