"""D1-skills: the heads of v3 divide the two skills between them, on the scale that all systems share."""

import xarray as xr

from mnemoscope import CLAIMS, Subject, generator
from mnemoscope.analyses import PART_EFFECTS, Metric, head_effects, lowest_skill_accuracy, subject_division
from mnemoscope.claims import GATE, LEARNED, Measured, controls, most, table
from mnemoscope.core import memoize
from mnemoscope.systems.tiny_recall.claim_parts import TEXTS, UNTRAINED, V3, as_v3, asked_of_more
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

DIVIDED = 0.75
N_SEQUENCES = 2048
"""Number of sequences of each kind, fresh and repeat."""


@memoize
def skill_effects(subject: Subject, *, metric: Metric = "accuracy") -> xr.DataArray:
    """The cost of mean ablation of each head for each skill, within sequences that test the same one."""
    batch = subject.task.monitor(N_SEQUENCES, split="test", generator=generator(subject.seed, "skill effects"))
    return head_effects(
        subject.model, batch, subject.task.skills(batch), within="is_repeat", metric=metric, seed=subject.seed
    )


PART_EFFECTS.add(PermutationLookup.name, skill_effects)


def divided(subject: Subject) -> dict[str, float]:
    """The division of labour, and the accuracy on the skill that is answered worst."""
    return {**subject_division(subject), GATE: lowest_skill_accuracy(subject)}


def _planted(division: float) -> dict[str, Measured]:
    return {"v3": {"division": division, "share": 1.0, "random": 0.5, GATE: 1.0}}


_DIVIDED, _SHARED = as_v3("one head a skill", dissociated), as_v3("a shared store", shared_store)
CLAIM = asked_of_more(
    id="D1-skills",
    statement="Heads divide labour: each skill of the model on repeats has a head of its own.",
    source="ours, over systems",
    units=V3,
    gate=LEARNED,
    measure=divided,
    explanation=TEXTS.explain("D1-skills", n=N_SEQUENCES, divided=DIVIDED),
    parts=(most("division", "above", DIVIDED, "share of the effect"),),
    prompts="own",
    controls=controls(positive=(_DIVIDED,), negative=(_SHARED, table("at the margin", _planted(DIVIDED)), UNTRAINED)),
)
CLAIM = CLAIM.against(
    CLAIM.rival(
        "undivided",
        "The same head carries most of both skills, or both heads carry them alike.",
        parts=(most("division", "below", DIVIDED, "share of the effect"),),
        controls=controls(positive=(_SHARED,), negative=(_DIVIDED, table("at the margin", _planted(DIVIDED)))),
    )
)
CLAIMS.add(CLAIM.id, CLAIM)
