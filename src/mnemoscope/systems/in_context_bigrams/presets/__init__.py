"""Configurations of both systems and what `reproduce` trains for them."""

from collections.abc import Iterable

from mnemoscope import ModelSpec, Preset, Recipe, System, Task, TrainingSet


def generic(summary: str, task: Task, *, n_steps: int, n_layers: int = 2, published: tuple[int, int]) -> Preset:
    """A transformer without normalisation of which everything is learned.

    Args:
        summary: Of the preset.
        task: Of 128 tokens; published: 256.
        n_steps: Of the quick recipe.
        n_layers: Of one head each.
        published: Widths of the residual stream and of the MLPs in the published recipe.
    """
    quick = Recipe(
        name="quick", n_steps=n_steps, batch_size=32, learning_rate=6e-3, beta2=0.98, metrics_every=25,
        checkpoint_steps=tuple(range(0, n_steps, 25)),
    )  # fmt: skip
    return Preset(
        summary=summary,
        task=task,
        model=ModelSpec(d_model=64, n_heads=1, n_layers=n_layers, d_mlp=64, normalization="none"),
        recipes={
            "quick": quick,
            "published": Recipe(name="published", n_steps=4000, batch_size=512, learning_rate=1e-3, metrics_every=25),
        },
        sizes={"published": {"task.length": 256, "model.d_model": published[0], "model.d_mlp": published[1]}},
    )


def plan(summary: str, presets: Iterable[str]) -> System:
    """What is trained for a system: 4 quick seeds, 16 published ones, and 16 quick ones that are shipped."""
    names = tuple(presets)

    def part(recipe: str, first: int, n: int) -> tuple[TrainingSet, ...]:
        return (TrainingSet(recipe=recipe, presets=names, seeds=tuple(range(first, first + n))),)

    return System(
        summary=summary, quick=part("quick", 48, 4), full=part("published", 16, 16), shipped=part("quick", 16, 16),
        compact=True,
    )  # fmt: skip
