"""Parts that the claims share: the models, the dictionaries, the gate, and what is planted."""

from functools import partial
from pathlib import Path

from mnemoscope import Claim, Configuration, Dictionary, DictionaryRecipe, Gate, Subject, train_dictionary
from mnemoscope.analyses import lowest_skill_accuracy
from mnemoscope.claims import ClaimTexts, case
from mnemoscope.core import memoize
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.dictionaries.answers import read_answers
from mnemoscope.systems.dictionaries.constructed import PairRecall, detectors, mixtures
from mnemoscope.systems.dictionaries.presets import FIRST_SEED, V3
from mnemoscope.systems.dictionaries.units import ends

UNITS = {V3: Configuration(preset=V3)}
WIDTH, K, N_STEPS = 4, 8, 4000
"""The size of a transcoder, in features by neurons, its largest number of active features, and its updates."""
NEEDED = 0.25
"""Recall that a model must lose with its MLP at its mean, for the MLP to be a part of recall."""
MIN_CARRIED = 0.05
"""Accuracy that the MLP must add for shares of it to mean something."""
LEARNED = 0.99
GATE_OF_RECALL = Gate(
    statement="answers both skills in 99 % of unseen sequences or more, and loses a quarter of recall without its MLP",
    at_least=LEARNED,
)
TEXTS = ClaimTexts(
    Path(__file__).with_name("claims") / "texts.yaml",
    {"width": WIDTH, "k": K, "n_steps": N_STEPS, "needed": NEEDED},
)
"""The texts of the claims, from `texts.yaml`."""
dictionary_claim = partial(
    Claim, system="dictionaries", source="ours, issue 46", units=UNITS, gate=GATE_OF_RECALL, first_seed=FIRST_SEED,
    last_seed=99, develops=False,
)  # fmt: skip


@memoize
def transcoder(subject: Subject, *, width: float = WIDTH, k: int = K, seed: int = 0) -> Dictionary:
    """A transcoder of the MLP at the last position, trained on sequences over the mappings of training.

    A model that has a dictionary of its own keeps it: controls plant features by hand.
    """
    own: tuple[Dictionary, ...] = getattr(subject.model, "dictionaries", ())
    if own:
        return own[0]
    recipe = DictionaryRecipe(width=width, k=k, n_steps=N_STEPS)
    return train_dictionary(subject.model, subject.task, recipe=recipe, pos=-1, seed=seed)


def carried(subject: Subject) -> float:
    """Recall accuracy that is lost with the mean in place of what the MLP writes."""
    none, whole = ends(subject.model, read_answers(subject))
    return whole - none


def passing(subject: Subject) -> float:
    """The value of the gate: accuracy of the worse skill, or 0 where recall does not need the MLP."""
    return lowest_skill_accuracy(subject) if carried(subject) > NEEDED else 0.0


MIXTURES = case("neurons mix the memory", set_by_hand(V3, mixtures, PairRecall()), n=1)
DETECTORS = case("neurons are the memory", set_by_hand(V3, detectors, PairRecall()), n=1)
UNTRAINED = case("untrained", untrained(UNITS), n=2)
