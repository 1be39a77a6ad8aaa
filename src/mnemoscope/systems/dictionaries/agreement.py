"""Agreement of two trainings on one scale: units of an MLP, and circuits of models.

Both sides are shares of what either has, with J the Jaccard index, less what chance gives:

    agreement = (J - chance) / (1 - chance),   0 at or below chance, 1 for the same (Cohen 1960, "kappa")

*Units* are those with a partner, one to one, whose activations on the same sequences correlate by a threshold; chance
is the mean over shuffled sequences. *Circuits* are edges with heads by role, found by greedy pruning; chance is the
mean over random connected circuits of the same sizes.

*Does not show* that partners write the same, nor that the grain is the same: a circuit has few edges, and a dictionary
many features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import (
    Batch,
    Dictionary,
    DictionaryRecipe,
    HookedModel,
    PromptPairs,
    Subject,
    find_runs,
    generator,
    train_dictionary,
)
from mnemoscope.analyses import (
    Setting,
    choose_roles,
    circuit,
    edges_by_role,
    greedy,
    match_activations,
    seed_stability,
    split_halves,
)
from mnemoscope.core import memoize
from mnemoscope.models import FIRST_CONTROL_SEED, subject, untrained
from mnemoscope.systems.dictionaries.answers import SKILL, Answers, read_answers
from mnemoscope.systems.dictionaries.circuits import other_answers
from mnemoscope.systems.dictionaries.claim_parts import LEARNED, UNITS, V3, passing
from mnemoscope.systems.dictionaries.constructed import PairRecall
from mnemoscope.systems.dictionaries.presets import FIRST_SEED
from mnemoscope.systems.dictionaries.units import features

N_ROWS = 2048
"""Sequences on which units are matched."""
N_PAIRS = 500
"""Sequences of each subgroup that roles and circuits are found on, and those that means come from."""
N_PARTNERS = 20
"""Models that are compared with the judged ones, one each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two trainings, and the seeds of two dictionaries of the first; one seed twice gives one dictionary twice."""

    one: Subject
    other: Subject
    seeds: tuple[int, int] = (0, 1)


def paired(found: Subject | Pair) -> Pair:
    """A judged model with the partner of its seed; a pair as it is."""
    if isinstance(found, Pair):
        return found
    pool = partners()
    return Pair(one=found, other=pool[(found.seed - FIRST_SEED) % len(pool)])


@cache
def partners() -> tuple[Subject, ...]:
    """The first models of the zoo that pass the gate and are not judged, in the order of their seeds."""
    runs = (run for run in find_runs(f"zoo:{V3}-quick") if run.spec.seed < FIRST_SEED)
    able = (run for run in runs if passing(subject(run)) >= LEARNED)
    return tuple(subject(run) for run in islice(able, N_PARTNERS))


def beyond_chance(observed: float, chance: float) -> float:
    """Agreement less chance; 0 where there is nothing to compare, or chance gives all."""
    if np.isnan([observed, chance]).any() or chance >= 1:
        return 0.0
    return max(0.0, (observed - chance) / (1 - chance))


def jaccard(shares: Float[np.ndarray, "*draw side"]) -> Float[np.ndarray, "*draw"]:
    """Matched units by units of either side, from the share of each side that is matched: 1 / (1/a + 1/b - 1)."""
    a, b = np.moveaxis(np.nan_to_num(shares), -1, 0)
    either = a + b - a * b
    return np.divide(a * b, either, out=np.zeros_like(either), where=either > 0)


def units_agree(
    one: Float[Tensor, "row unit"], other: Float[Tensor, "row other_unit"], *, threshold: float, seed: int
) -> float:
    """The agreement of units by their activations in the same rows."""
    found = match_activations(one[:, None], other[:, None], threshold=threshold, n_draws=20, seed=seed)
    chance = jaccard(found.shuffled_share.transpose("draw", "side").to_numpy()).mean()
    return beyond_chance(float(jaccard(found.share.to_numpy())), float(chance))


@memoize
def dictionary(subject: Subject, *, width: float, k: int, n_steps: int, seed: int) -> Dictionary:
    """A transcoder of the last position, as those of the other claims."""
    recipe = DictionaryRecipe(width=width, k=k, n_steps=n_steps)
    return train_dictionary(subject.model, subject.task, recipe=recipe, pos=-1, seed=seed)


def dictionaries_agree(pair: Pair, *, threshold: float, width: float, k: int, n_steps: int, seed: int) -> float:
    """The agreement of two dictionaries of the first model; another `seed` gives two others."""
    answers = read_answers(pair.one)
    seeds = [2 * seed + each for each in pair.seeds]
    each = [dictionary(pair.one, width=width, k=k, n_steps=n_steps, seed=seed) for seed in seeds]
    one, other = (features(found, answers).activation[rows(answers)] for found in each)
    return units_agree(one, other, threshold=threshold, seed=pair.one.seed)


def rows(answers: Answers) -> Tensor:
    """The rows on which units are matched: sequences of the skill, in random order."""
    return answers.order[:N_ROWS]


def circuits_agree(pair: Pair, *, target: float) -> float:
    """The agreement of the circuits of two models, with heads by role; 0 where one has none."""
    found = [circuit_by_role(each, target=target) for each in (pair.one, pair.other)]
    both = xr.concat(found, "seed").assign_coords(seed=[0, 1])
    same = seed_stability(Setting(model=pair.one, pairs=draw_pairs(pair.one)[0]), both, seed=pair.one.seed)
    return beyond_chance(float(same.jaccard), float(same.by_chance))


@memoize
def circuit_by_role(subject: Subject, *, target: float) -> xr.DataArray:
    """The circuit of a skill, over edges with heads by role; empty where the model does not know the answers."""
    pairs, selection = draw_pairs(subject)
    reference = subject.task.sample(N_PAIRS, split="test", generator=generator(subject.seed, "reference"))
    named = choose_roles(subject.model, selection, skills=subject.task.skills(selection), reference=reference)
    setting = Setting(model=subject.model, pairs=pairs, refuse=False)
    known = not np.isnan(setting.span)
    found = greedy(setting, target=target).circuit if known else circuit(setting.edges, [])
    return edges_by_role(found.to_dataset(name="circuit"), named).circuit


def draw_pairs(subject: Subject) -> tuple[PromptPairs, Batch]:
    """Pairs of sequences that differ in the answer, and other sequences to choose roles by."""
    task, seed = subject.task, subject.seed
    batch = task.monitor(N_PAIRS, split="test", generator=generator(seed, "circuits"))
    selection, measured = split_halves(batch)
    if not task.corruptions:
        return other_answers(N_PAIRS, seed), selection
    return PromptPairs.from_task(task, measured, kind=task.corruptions[0], skill=SKILL, seed=seed), selection


def set_by_hand(
    one: Callable[[], HookedModel], other: Callable[[], HookedModel], seeds: tuple[int, int], case: int
) -> dict[str, Pair]:
    """A control: two models of the task of one pair, in the place of a judged model and its partner."""
    made = [Subject(model=make(), task=PairRecall(), seed=FIRST_CONTROL_SEED + case) for make in (one, other)]
    return {V3: Pair(one=made[0], other=made[1], seeds=seeds)}


def untrained_pair(case: int) -> dict[str, Pair]:
    """A control: two models with fresh weights."""
    one, other = (untrained(UNITS)(number)[V3] for number in (2 * case, 2 * case + 1))
    return {V3: Pair(one=one, other=other)}
