"""Parts that several claims share: configurations, sequences, and planted models and courses."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from mnemoscope import Batch, Claim, Configuration, HookedModel, Subject
from mnemoscope.claims import Case, ClaimTexts, case
from mnemoscope.models.constructed import Course, prescribe_course
from mnemoscope.systems.markov.analyses.distances import chains_of, prompts
from mnemoscope.systems.markov.constructed import bigram_circuit, unigram_circuit
from mnemoscope.systems.markov.tasks import MarkovChains

SOURCE = "Edelman et al. 2024, The evolution of statistical induction heads: in-context learning Markov chains"
COMPETITION = "Park et al. 2024, Competition dynamics shape algorithmic phases of in-context learning"
FIRST_SEED = 32
"""Seeds 32 to 47 are trained for these claims; recipes were chosen on seed 900."""
TWO, THREE, EIGHT = "markov-2", "markov-3", "markov-8"
BALANCED, AFTER, TRIGRAMS = "markov-doubly-stochastic", "markov-after-unigram", "markov-trigrams"
TASK = MarkovChains()
"""The task of `markov-3`, for models set by hand."""
HALF = 0.5
"""The share of the gap from which a model counts as nearer to the n-gram than to anything simpler."""

TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml", {"half": HALF})
"""The texts of the claims, from `texts.yaml`."""
markov_claim = partial(Claim, system="markov", source=SOURCE, first_seed=FIRST_SEED)


def units(*names: str) -> dict[str, Configuration]:
    """Configurations by their preset."""
    return {name: Configuration(preset=name) for name in names}


def sequences(subject: Subject) -> Batch:
    """Sequences of the subject's seed; an `InputError` for another task."""
    return prompts(chains_of(subject.task), subject.seed)


def induction_by_hand(n_symbols: int = 3) -> HookedModel:
    """A statistical induction head for planted subjects."""
    return bigram_circuit(MarkovChains(n_symbols=n_symbols))


def counting_by_hand(n_symbols: int = 3) -> HookedModel:
    """A model that counts symbols, for planted subjects."""
    return unigram_circuit(MarkovChains(n_symbols=n_symbols))


def astray_by_hand() -> HookedModel:
    """A statistical induction head whose first layer looks two back."""
    return bigram_circuit(TASK, looks_back=2)


def followed(name: str, planted: Mapping[str, Mapping[str, Course]]) -> Case:
    """A control: trajectories with these courses, by unit."""
    return case(name, prescribe_course(units(*planted), planted), n=1)
