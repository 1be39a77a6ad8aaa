"""Stories of two names as a question to methods of circuit discovery: no circuit of SmolLM2 is known edge by edge."""

import mnemoscope as ms
from mnemoscope.methods import KNOWN_CIRCUITS, OpenQuestion
from mnemoscope.systems.language_models.families import name_pairs

KNOWN_CIRCUITS.add(
    "smollm2-names",
    OpenQuestion(
        name="smollm2-names",
        source="Which of two names comes next? G4 is about heads; which edges carry the name is not established.",
        make=ms.language_model,
        pairs=name_pairs,
    ),
)
