"""Configurations of the formation of induction heads: as published, with parts held ideal, and with a lesion.

The published recipe has Adam at a rate of 1e-5 and batches of 32. `quick` has fifty times the rate and four times the
batch. On pilot seeds courses at rates of 2e-5 (batches of 32), 2e-4, 5e-4 and 1e-3 (128) have one shape: the loss falls
to log 2, stays there, and changes (`experiments/2026-induction-formation`).

Every condition that holds a part ideal has one head in layer 1, so that the part is about that head; it is compared
with `formation-one-head`. `ideal_parts` says what each leaves to learn.
"""

from dataclasses import replace

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.core import Clamp
from mnemoscope.systems.induction_formation.tasks import FewShot

LESION = 600
"""Step from which a lesion removes half of the heads of layer 1: pilots have changed by then."""
LESIONED = (("recipe.clamps", (Clamp(place="L1H0-3", value="zero", start=LESION),)),)
"""The lesion, as a change of `formation`."""
_ONE_HEAD = Clamp(place="L1H1-7", value="zero")
_IDEAL = {name: Clamp(ideal=f"perfect-{name}") for name in ("layer-1", "match", "key", "copy")}
CONDITIONS: dict[str, tuple[str, tuple[Clamp, ...]]] = {
    "formation": ("nothing held", ()),
    "formation-one-head": ("one head in layer 1", (_ONE_HEAD,)),
    "formation-previous": (
        "L0H0 attends to the token before, one head in layer 1",
        (_ONE_HEAD, Clamp(place="L0H0 pattern", pattern="previous token")),
    ),
    "formation-layer-1": ("perfect layer 1 (B held)", (_ONE_HEAD, _IDEAL["layer-1"])),
    "formation-match": ("perfect match (B and C held)", (_ONE_HEAD, _IDEAL["match"])),
    "formation-copy": ("perfect copy (A held)", (_ONE_HEAD, _IDEAL["copy"])),
    "formation-layer-1-copy": (
        "perfect layer 1 and copy (A and B held)",
        (_ONE_HEAD, _IDEAL["layer-1"], _IDEAL["copy"]),
    ),
    "formation-key-copy": ("perfect key and copy (A and C held)", (_ONE_HEAD, _IDEAL["key"], _IDEAL["copy"])),
}
"""By preset what is held, in words and as clamps."""

_QUICK = Recipe(
    name="quick", n_steps=3000, batch_size=128, learning_rate=5e-4, metrics_every=10,
    checkpoint_steps=(*range(0, 1000, 50), *range(1000, 3000, 200)), save_every=1000,
)  # fmt: skip
_PUBLISHED = Recipe(
    name="published", n_steps=100_000, batch_size=32, learning_rate=1e-5, metrics_every=500,
    checkpoint_steps=tuple(range(0, 100_000, 5000)), save_every=5000,
)  # fmt: skip
_MODEL = ModelSpec(d_model=64, n_heads=8, n_layers=2, mlp=False, position_kind="rotary")


for _name, (_summary, _clamps) in CONDITIONS.items():
    PRESETS.add(
        _name,
        Preset(
            summary=_summary,
            task=FewShot(),
            model=_MODEL,
            recipes={
                "quick": replace(_QUICK, clamps=_clamps),
                "published": replace(_PUBLISHED, clamps=_clamps),
            },
        ),
    )

FIRST_SEED = 16
"""Seeds from 900 on were looked at while recipes were chosen."""
MORE = {"classes": (("task.n_classes", 200),), "labels": (("task.n_labels", 20),)}
"""Four times as many classes, or labels."""
_SEEDS = tuple(range(FIRST_SEED, FIRST_SEED + 16))
_FRESH = (FIRST_SEED + 16, FIRST_SEED + 17)
NEAR_SEEDS = tuple(range(FIRST_SEED + 18, FIRST_SEED + 34))
"""Seeds of I4-near, which was put after the others had been looked at."""
_ONE_LEFT = ("formation-one-head", "formation-match", "formation-key-copy", "formation-layer-1-copy")
_OTHERS = ("formation-previous",)
"""Presets that no verdict rests on; their runs are not packed."""
_JUDGED = tuple(name for name in CONDITIONS if name not in _OTHERS)
_VARIED = ("formation", "formation-match", "formation-layer-1-copy")


def _plans(seeds: tuple[int, ...]) -> tuple[TrainingSet, ...]:
    return (
        TrainingSet(recipe="quick", presets=_JUDGED, seeds=seeds),
        TrainingSet(recipe="quick", presets=_OTHERS, seeds=seeds, packed=False),
        TrainingSet(recipe="quick", presets=("formation",), seeds=seeds, changes=LESIONED, called="lesion"),
        *(  # with these the archives would exceed ten megabytes
            TrainingSet(
                recipe="quick", presets=_VARIED, seeds=seeds, changes=changes, called=f"more-{name}", packed=False
            )
            for name, changes in MORE.items()
        ),
    )


SYSTEMS.add(
    "induction-formation",
    System(
        summary="what an induction head needs: exemplars with labels, and parts of the circuit held ideal in training",
        quick=_plans(_FRESH),
        full=(TrainingSet(recipe="published", presets=("formation", "formation-one-head"), seeds=_SEEDS[:4]),),
        shipped=(*_plans(_SEEDS), TrainingSet(recipe="quick", presets=_ONE_LEFT, seeds=NEAR_SEEDS, packed=False)),
        compact=True,
    ),
)
