"""Parts that claims on all puzzles share: the seeds, the gate, and the texts."""

from functools import partial
from pathlib import Path

from mnemoscope import Claim, Configuration, Gate
from mnemoscope.claims import ClaimTexts
from mnemoscope.systems.puzzles.presets import JUDGED

FIRST_SEED = min(map(min, JUDGED.values()))
"""Smaller seeds were looked at while recipes were chosen."""
TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml")
"""The texts of the claims, from `texts.yaml`."""
puzzle_claim = partial(Claim, system="puzzles", first_seed=FIRST_SEED)


def units(*names: str) -> dict[str, Configuration]:
    """Configurations by their preset."""
    return {name: Configuration(preset=name) for name in names}


def answers_classes(share: float) -> Gate:
    """The gate of a mechanism: every class is answered right in this share of fresh sequences or more."""
    return Gate(statement=f"answers every class right in {100 * share:g} % of fresh sequences or more", at_least=share)
