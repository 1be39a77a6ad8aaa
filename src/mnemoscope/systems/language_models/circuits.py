"""Stories of two names as a question to methods of circuit discovery: no circuit of SmolLM2 is known edge by edge."""

import mnemoscope as ms
from mnemoscope.methods import KNOWN_CIRCUITS, OpenQuestion
from mnemoscope.systems.language_models.prompts import givers


def name_pairs(model: ms.HookedModel, n: int, seed: int) -> ms.PromptPairs:
    """Stories in which one name occurs twice, and the same stories with the other name twice."""
    return givers(model, n=n, seed=seed)


KNOWN_CIRCUITS.add(
    "smollm2-names",
    OpenQuestion(
        name="smollm2-names",
        source="Which of two names comes next? G4 is about heads; which edges carry the name is not established.",
        make=ms.language_model,
        pairs=name_pairs,
    ),
)
