"""The presets of the puzzles, one module per puzzle, and the runs that `reproduce` trains.

The architectures are those of the originals. The recipe `published` is that of the original; `quick` has fewer steps of
smaller batches.
"""

from mnemoscope import SYSTEMS, System, TrainingSet

PUZZLES = ("palindrome", "palindrome-uniform", "first-unique", "digit-sum", "sorted-list", "running-sum", "brackets")
"""The presets of all puzzles."""
SEEDS = tuple(range(32, 48))
"""The seeds behind the verdicts."""


def _part(seeds: tuple[int, ...]) -> TrainingSet:
    return TrainingSet(recipe="quick", presets=PUZZLES, seeds=seeds)


SYSTEMS.add(
    "puzzles",
    System(
        summary="six small models that the community took apart: is it the task, the architecture, or that one seed?",
        quick=(_part(tuple(range(48, 52))),),
        full=(_part(SEEDS),),
        compact=True,
    ),
)
