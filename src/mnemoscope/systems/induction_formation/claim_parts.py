"""Parts that several claims share: configurations, courses, and what is planted."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from mnemoscope import Batch, Claim, Configuration, Gate, HookedModel, InputError, Subject, generator
from mnemoscope.claims import Case, ClaimTexts, case
from mnemoscope.models import logged, untrained
from mnemoscope.models.constructed import Course, prescribed
from mnemoscope.systems.induction_formation.analyses.courses import NEVER, PLATEAU
from mnemoscope.systems.induction_formation.analyses.heads import STRONG
from mnemoscope.systems.induction_formation.presets import FIRST_SEED
from mnemoscope.systems.induction_formation.tasks import FewShot

SOURCE = "Singh et al. 2024, What needs to go right for an induction head?"
BASE, ONE_HEAD = "formation", "formation-one-head"
ACCURACY, RATIO = 0.99, 0.25
"""An accuracy that counts as learned; a factor of 2^.25, about 1.19, in steps."""
LOG2 = "log2 of a ratio of steps"
N_SEQUENCES = 256
HAND_TASK = FewShot(n_classes=12)
"""The task of models set by hand."""

TEXTS = ClaimTexts(
    Path(__file__).with_name("claims") / "texts.yaml",
    {"accuracy": ACCURACY, "ratio": RATIO, "strong": STRONG, "n_sequences": N_SEQUENCES, "never": NEVER},
)
"""The texts of the claims, from `texts.yaml`."""
formation_claim = partial(Claim, system="induction-formation", source=SOURCE, first_seed=FIRST_SEED)
LEARNED = Gate(statement=f"answers {ACCURACY:.0%} of unseen labellings rightly", at_least=ACCURACY)


def units(*names: str) -> dict[str, Configuration]:
    """Configurations by their preset."""
    return {name: Configuration(preset=name) for name in names}


def task_of(subject: Subject) -> FewShot:
    """The task of a subject; an `InputError` unless it is this system's."""
    if not isinstance(subject.task, FewShot):
        raise InputError(f"the claim is about exemplars with labels; got a model of {subject.task.name}")
    return subject.task


def course(subject: Subject) -> xr.DataArray:
    """The loss on unseen labellings that training logged, with its clamps where it has some, over `step`."""
    return logged(subject.progress, "test_loss")


def later(steps: Mapping[str, float], one: str, other: str) -> float:
    """log2 of how many times as many steps the first takes as the second."""
    return math.log2(max(1.0, steps[one]) / max(1.0, steps[other]))


# ---- what is planted


def waits(delay: float, width: float) -> Course:
    """A loss that is at log 2 up to a step and then falls exponentially: at width log 2 later it is half of that."""
    points = delay + width * np.linspace(0, 8, 33)
    return tuple((float(step), PLATEAU * math.exp(-(step - delay) / width)) for step in points)


def followed(
    configurations: Mapping[str, Configuration],
    losses: Mapping[str, Course],
    tracked: Mapping[str, Mapping[str, Course]],
    models: Mapping[str, Callable[[], HookedModel]],
    number: int,
) -> dict[str, Subject]:
    """Subjects with planted losses, trajectories and models by unit; the models of other units are untrained."""
    fresh = untrained(configurations)(number)
    return {
        name: replace(
            subject,
            progress=prescribed(configurations[name], {"test_loss": losses[name]}, "progress"),
            trajectory=prescribed(configurations[name], tracked[name], "trajectory") if name in tracked else None,
            **({"model": models[name](), "task": HAND_TASK.for_seed(subject.seed)} if name in models else {}),
        )
        for name, subject in fresh.items()
    }


def planted(
    name: str,
    configurations: Mapping[str, Configuration],
    losses: Mapping[str, Course],
    *,
    tracked: Mapping[str, Mapping[str, Course]] | None = None,
    models: Mapping[str, Callable[[], HookedModel]] | None = None,
    n: int = 1,
) -> Case:
    """A control of `followed`."""
    return case(name, partial(followed, configurations, dict(losses), dict(tracked or {}), dict(models or {})), n=n)


def prompts_of(subject: Subject) -> Batch:
    """Sequences of unseen labellings, from the seed's stream `prompts`."""
    return task_of(subject).sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "prompts"))
