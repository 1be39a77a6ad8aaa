"""Configurations of the formation of induction heads: the model as published, and more classes or more labels.

The published recipe has Adam at a rate of 1e-5 and batches of 32. `quick` has twenty times the rate and four times the
batch: on one pilot seed the loss falls to log 2 within 400 updates, stays there for 200, and changes between 700 and
1,200. At a rate of 2e-5 and with batches of 32 the course has the same shape (`experiments/2026-induction-formation`).
"""

from dataclasses import replace

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.systems.induction_formation.tasks import FewShot

_QUICK = Recipe(
    name="quick", n_steps=3000, batch_size=128, learning_rate=5e-4, metrics_every=10,
    checkpoint_steps=tuple(range(0, 3000, 100)), save_every=1000,
)  # fmt: skip
_PUBLISHED = Recipe(
    name="published", n_steps=100_000, batch_size=32, learning_rate=1e-5, metrics_every=500,
    checkpoint_steps=tuple(range(0, 100_000, 5000)), save_every=5000,
)  # fmt: skip
_MODEL = ModelSpec(d_model=64, n_heads=8, n_layers=2, mlp=False, position_kind="rotary")
_TASK = FewShot()


def _preset(summary: str, task: FewShot = _TASK) -> Preset:
    return Preset(summary=summary, task=task, model=_MODEL, recipes={"quick": _QUICK, "published": _PUBLISHED})


_PRESETS = {
    "formation": _preset("50 classes, 5 labels"),
    "formation-classes": _preset("200 classes", replace(_TASK, n_classes=200)),
    "formation-labels": _preset("20 labels", replace(_TASK, n_labels=20)),
}
for _name, _value in _PRESETS.items():
    PRESETS.add(_name, _value)

FIRST_SEED = 16
"""Seeds from 900 on were looked at while recipes were chosen."""


def _part(*presets: str, seeds: range, recipe: str = "quick") -> TrainingSet:
    return TrainingSet(recipe=recipe, presets=presets, seeds=tuple(seeds))


SYSTEMS.add(
    "induction-formation",
    System(
        summary="what an induction head needs: a few exemplars with labels, and parts of the circuit held ideal",
        quick=(_part(*_PRESETS, seeds=range(FIRST_SEED + 16, FIRST_SEED + 18)),),
        full=(_part("formation", seeds=range(4), recipe="published"),),
        shipped=(_part(*_PRESETS, seeds=range(FIRST_SEED, FIRST_SEED + 16)),),
        compact=True,
        default="formation",
    ),
)
