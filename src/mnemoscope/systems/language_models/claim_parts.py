"""Parts that the claims share: margins in one unit, controls, and how a claim about language models begins.

An effect is a share of what the whole model does: of the lead of the right answer over its foil, or of the attention
that heads give. The margins are the same in all claims, and were fixed before any language model was looked at. G3 asks
for a change of the lead itself. A denominator below `LEAST` counts as that, so that a model which does nothing loses
nothing.
"""

from functools import partial
from pathlib import Path

from mnemoscope import Claim
from mnemoscope.claims import ClaimTexts, case, most
from mnemoscope.systems.language_models.constructed import untrained
from mnemoscope.systems.language_models.prompts import LENGTH, N_CHOOSING, N_QUESTIONS, N_SEQUENCES
from mnemoscope.systems.language_models.reading import LEAST, N_DRAWS

QUARTER, TENTH = 0.25, 0.1
LEAST_ATTENTION = 0.1
"""Share of attention; even attention over 40 tokens gives 0.025 to each."""

TEXTS = ClaimTexts(
    Path(__file__).with_name("claims") / "texts.yaml",
    {
        "n_questions": N_QUESTIONS, "n_sequences": N_SEQUENCES, "n_choosing": N_CHOOSING, "n_draws": N_DRAWS,
        "length": LENGTH, "least_attention": LEAST_ATTENTION,
    },
)  # fmt: skip
"""The texts of the claims, from `texts.yaml`."""
about_models = partial(
    Claim, system="language-models", replicate="question", n_replicates=N_QUESTIONS, develops=False, version=2
)
UNTRAINED = case("random weights", untrained, n=2)
carries = partial(most, direction="above", margin=QUARTER)
leads = partial(most, direction="above", margin=TENTH)
by_logits = partial(most, direction="above", margin=LEAST, unit="logits")
turns = partial(most, direction="above", margin=0.0, unit="logits")
