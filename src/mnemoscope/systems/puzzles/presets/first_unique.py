"""The first unique letter: two layers of three heads, attention only, as in the original."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.first_unique import FirstUnique

PRESETS.add(
    "first-unique",
    Preset(
        summary="the first letter so far that stood there once; 2 layers, 3 heads, d 42",
        task=FirstUnique(),
        model=ModelSpec(d_model=42, d_head=14, n_heads=3, n_layers=2, mlp=False),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=4000, batch_size=128, learning_rate=3e-3, beta2=0.98, warmup_steps=100,
                decay="cosine", metrics_every=100,
            ),
            "published": Recipe(name="published", n_steps=50 * 196, batch_size=512, metrics_every=98),
        },
    ),
)  # fmt: skip
