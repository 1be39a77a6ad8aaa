"""Families of prompt pairs that can be drawn again, for analyses that ask whether a result stays.

A pair differs in what the answer hangs on: who is named again, the subject of a fact, or whether a text says what
follows a preposition. Stories draw any number of pairs from names and stories. Facts and conflicts have a fixed list,
of which a draw takes some, so that draws share prompts. A *wording* tells the same names with the same answers in other
stories, on both sides of a pair.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from mnemoscope import HookedModel, PromptPairs, generator
from mnemoscope.core import in_range
from mnemoscope.systems.language_models.prompts import conflicts, facts, givers
from mnemoscope.systems.language_models.words import GIVING, TALKING

Draw = Callable[[HookedModel, int, int], PromptPairs]
"""Takes a model, a number of pairs and a seed."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Pairs that differ in one respect; `wordings` give the pairs of the same seed in other words, by name."""

    draw: Draw
    wordings: Mapping[str, Draw] = field(default_factory=dict)


def name_pairs(model: HookedModel, n: int, seed: int, *, stories: str = GIVING) -> PromptPairs:
    """Stories in which one name occurs twice, and the same stories with the other name twice."""
    return givers(model, n=n, seed=seed, stories=stories)


def fact_pairs(model: HookedModel, n: int, seed: int) -> PromptPairs:
    """Facts about a subject, and the same asked of a subject with another answer."""
    return _some(facts(model).told.pairs, n, seed)


def conflict_pairs(model: HookedModel, n: int, seed: int) -> PromptPairs:
    """Texts that say what follows a preposition, and the same without it; the foil is what mostly follows."""
    found = conflicts(model)
    silent = replace(found.plain, targets=found.foil)
    return _some(PromptPairs(clean=found.told, corrupted=silent, name="what was said"), n, seed)


def _some(pairs: PromptPairs, n: int, seed: int) -> PromptPairs:
    """A draw of `n` of the pairs, each at most once; raises InputError where there are fewer."""
    in_range("n", n, 1, len(pairs))
    return pairs.select(torch.randperm(len(pairs), generator=generator(seed, "some"))[:n])


FAMILIES: dict[str, Family] = {
    "names": Family(draw=name_pairs, wordings={TALKING: partial(name_pairs, stories=TALKING)}),
    "facts": Family(draw=fact_pairs),
    "conflicts": Family(draw=conflict_pairs),
}
"""Every family by name."""
