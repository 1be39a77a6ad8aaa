"""The transformer on noisy recall, and the plan."""

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.systems.in_context_bigrams.tasks.noisy_recall import NoisyRecall

_PRESET = Preset(
    summary="2 layers, fixed triggers, half of the outputs replaced by noise",
    task=NoisyRecall(length=128),
    model=ModelSpec(d_model=64, n_heads=1, n_layers=2, d_mlp=64, normalization="none"),
    recipes={
        "quick": Recipe(
            name="quick",
            n_steps=1000,
            batch_size=32,
            learning_rate=6e-3,
            beta2=0.98,
            metrics_every=25,
            checkpoint_steps=tuple(range(0, 1000, 25)),
        ),
        "published": Recipe(name="published", n_steps=4000, batch_size=512, learning_rate=1e-3, metrics_every=25),
    },
    sizes={"published": {"task.length": 256, "model.d_model": 256, "model.d_mlp": 1024}},
)

PRESETS.add("noisy-recall", _PRESET)


def _part(recipe: str, first: int, n: int) -> tuple[TrainingSet, ...]:
    return (TrainingSet(recipe=recipe, presets=("noisy-recall",), seeds=tuple(range(first, first + n))),)


_SYSTEM = System(
    summary="in-context recall against a noise token that always may follow",
    quick=_part("quick", 48, 4),
    full=_part("published", 16, 16),
    shipped=_part("quick", 16, 16),
    compact=True,
)
SYSTEMS.add("noisy-recall", _SYSTEM)
