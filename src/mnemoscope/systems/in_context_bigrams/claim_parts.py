"""Parts that several claims share: the two systems, and what is planted for them."""

from functools import partial
from pathlib import Path

from mnemoscope import Claim, HookedModel
from mnemoscope.claims import ClaimTexts
from mnemoscope.models.constructed import induction
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams

TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml")
"""The texts of the claims, from `texts.yaml`."""
birth = partial(Claim, system="birth")
noisy_recall = partial(Claim, system="noisy-recall")

RANDOM_TRIGGERS, FIXED_TRIGGERS = InContextBigrams(length=64), InContextBigrams(length=64, triggers="fixed")
"""Tasks of planted models: shorter than the units', since a circuit has a dimension per position."""
NEVER = 10_000
"""A step after the last of every recipe."""
SGD = "sgd"
"""The recipe with the source's optimiser, on which claims about associative memories are judged."""
MEMORY_SEEDS = 32
"""The first seed that claims about associative memories are judged on; smaller ones were looked at before."""

MATRICES_FOLLOWED = "Checkpoints that were kept along training are measured afterwards, by their matrices alone."
"""The same where no prompts are needed."""


def any_token() -> HookedModel:
    """The induction circuit, for every token."""
    return induction(FIXED_TRIGGERS.d_vocab, FIXED_TRIGGERS.n_ctx)
