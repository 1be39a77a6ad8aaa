"""The presets of the puzzles, one module per puzzle, and the runs that `reproduce` trains.

The architectures are those of the originals. The recipe `published` is that of the original; `quick` has fewer steps of
smaller batches.
"""

from mnemoscope import SYSTEMS, System, TrainingSet

JUDGED = {
    "palindrome": range(32, 56),
    "palindrome-uniform": range(32, 56),
    "first-unique": range(32, 96),
    "digit-sum": range(32, 72),
    "sorted-list": range(32, 48),
    "running-sum": range(32, 48),
    "brackets": range(32, 56),
}
"""The seeds behind the verdicts, by preset.

Sixteen of each were trained first. Where fewer than sixteen passed a gate, the share that passed gave the number of
further ones, before they were trained.
"""


def _part(preset: str, seeds: range) -> TrainingSet:
    return TrainingSet(recipe="quick", presets=(preset,), seeds=tuple(seeds))


SYSTEMS.add(
    "puzzles",
    System(
        summary="six small models that the community took apart: is it the task, the architecture, or that one seed?",
        quick=(TrainingSet(recipe="quick", presets=tuple(JUDGED), seeds=tuple(range(96, 100))),),
        full=tuple(_part(preset, seeds) for preset, seeds in JUDGED.items()),
        compact=True,
    ),
)
