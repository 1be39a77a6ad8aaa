"""D1: heads divide labour, on one scale for values, letters, places and faults.

The parts of each puzzle, and the heads among which they may be divided, are those of its last layer: heads that work
side by side. The division of skills in another system is D1-skills, by the same measure.
"""

import torch
import xarray as xr

from mnemoscope import CLAIMS, Claim, Gate, Subject, evaluate, generator
from mnemoscope.analyses import PART_EFFECTS, Metric, head_effects, subject_division
from mnemoscope.claims import GATE, Case, Measured, case, controls, most, table
from mnemoscope.core import memoize
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.palindrome import broken_sequences, sequences
from mnemoscope.systems.puzzles.claim_parts import TEXTS, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.sorted_list import TASK, graded_model, range_model, single_model
from mnemoscope.systems.puzzles.tasks.brackets import KINDS, Brackets
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

DIVIDED = 0.75
ANSWERS = 0.9
N_SEQUENCES = 1024
FAULTS = ("total", "negative")
_EFFECT = "share of the effect"


def last_heads(subject: Subject) -> list[tuple[int, int]]:
    """The heads of the last layer."""
    cfg = subject.model.cfg
    return [(cfg.n_layers - 1, head) for head in range(cfg.n_heads)]


@memoize
def place_effects(subject: Subject, *, metric: Metric = "accuracy") -> xr.DataArray:
    """The cost of mean ablation of each last head where one pair alone is broken, by pair."""
    batch = broken_sequences(subject)
    pair = batch.latents["broken_pair"][:, None]
    parts = {str(number): batch.scored & (pair == number) for number in sorted(pair.unique().tolist())}
    return head_effects(
        subject.model, batch, parts, heads=last_heads(subject), reference=sequences(subject, "means"),
        metric=metric, seed=subject.seed,
    )  # fmt: skip


@memoize
def fault_effects(subject: Subject, *, metric: Metric = "accuracy") -> xr.DataArray:
    """The cost of mean ablation of each last head for strings with one fault alone, by fault."""
    task = subject.task
    assert isinstance(task, Brackets)
    kinds = torch.tensor([KINDS.index(fault) for fault in FAULTS]).repeat_interleave(N_SEQUENCES)
    batch = task.of_kinds(kinds, generator=generator(subject.seed, "faults"))
    reference = task.sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "means"))
    parts = {fault: task.skills(batch)[fault] for fault in FAULTS}
    return head_effects(
        subject.model, batch, parts, heads=last_heads(subject), reference=reference, metric=metric, seed=subject.seed
    )  # fmt: skip


PART_EFFECTS.add(Palindrome.name, place_effects)
PART_EFFECTS.add(Brackets.name, fault_effects)


def divided(subject: Subject) -> dict[str, float]:
    """The division of labour, and the accuracy on the skill that is answered worst."""
    batch = subject.task.sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "gate"))
    found = evaluate(subject.model, subject.task, batch, by="skill", references=())
    return {**subject_division(subject), GATE: float(found.accuracy.drop_sel(skill="all").min())}


def _planted(name: str, preset: str, division: float) -> Case:
    measured: Measured = {"division": division, "share": 1.0, "random": 0.5, GATE: 1.0}
    return table(name, {preset: measured})


def division_claim(word: str, preset: str, part: str, *positive: Case, negative: tuple[Case, ...] = ()) -> Claim:
    """The claim that each part of a puzzle has a head of its own, and its rival."""
    claim = puzzle_claim(
        id=f"D1-{word}",
        statement=f"Heads divide labour: each {part} has a head of its own.",
        source="ours, over systems",
        units=units(preset),
        gate=_GATE,
        measure=divided,
        explanation=TEXTS.explain(f"D1-{word}", n=N_SEQUENCES, divided=DIVIDED),
        prompts="own",
        parts=(most("division", "above", DIVIDED, _EFFECT),),
        controls=controls(
            positive=positive or (_planted("a head a part", preset, 1.0),),
            negative=(
                *negative, _planted("at the margin", preset, DIVIDED), case("untrained", untrained(units(preset)), n=2),
            ),
        ),
    )  # fmt: skip
    return claim.against(
        claim.rival(
            "undivided",
            "One head carries most of several parts, or several heads carry them alike.",
            parts=(most("division", "below", DIVIDED, _EFFECT),),
            controls=controls(
                positive=(_planted("nothing divided", preset, 0.0),), negative=(_planted("a head a part", preset, 1.0),)
            ),
        )
    )


_GATE = Gate(statement="answers each kind of question right in 90 % of fresh prompts", at_least=ANSWERS)
_LISTS = [
    case(name, set_by_hand("sorted-list", make, TASK), n=1)
    for name, make in (("a range a head", range_model), ("one head", single_model), ("graded", graded_model))
]
VALUES = division_claim("values", "sorted-list", "value", _LISTS[0], negative=tuple(_LISTS[1:]))
LETTERS = division_claim("letters", "first-unique", "letter")
PLACES = division_claim("places", "palindrome", "place")
FAULTS_DIVIDED = division_claim("faults", "brackets", "fault")
for _claim in (VALUES, LETTERS, PLACES, FAULTS_DIVIDED):
    CLAIMS.add(_claim.id, _claim)
