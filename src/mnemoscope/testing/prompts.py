"""Prompts that assertions choose roles by and measure on: unseen ones, drawn from the seed's own streams."""

from dataclasses import dataclass
from functools import lru_cache

from mnemoscope.analyses.ablation.head_roles import role_prompts
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.protocols import Task
from mnemoscope.core.skills import Skills

N_PROMPTS = 2048
"""Sequences of each subgroup, half of them for choosing and half for measuring."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prompts:
    """Sequences of one seed.

    Attributes:
        selection: Those that roles are chosen by.
        test: Those that are measured on.
        reference: What means are taken over and activations drawn from.
        selection_skills: On the selection.
        skills: On the test.
    """

    selection: Batch
    test: Batch
    reference: Batch
    selection_skills: Skills
    skills: Skills


@lru_cache(maxsize=4)
def prompts(task: Task, seed: int, n: int = N_PROMPTS) -> Prompts:
    """The prompts of a seed, kept for the next assertion."""
    selection, test, reference = role_prompts(task, n=n, split="test", seed=seed)
    return Prompts(
        selection=selection,
        test=test,
        reference=reference,
        selection_skills=task.skills(selection),
        skills=task.skills(test),
    )


def check_skill(argument: str, skill: str, at: Prompts) -> None:
    """Refuse a skill that the task has not.

    Raises:
        InputError: Naming those that it has.
    """
    one_of(argument, skill, at.skills)
