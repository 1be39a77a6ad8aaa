"""Sorted lists: one layer of two heads, attention only, as in the original."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.sorted_list import SortedList

PRESETS.add(
    "sorted-list",
    Preset(
        summary="ten values in ascending order: 1 layer, 2 heads, d 96",
        task=SortedList(),
        model=ModelSpec(d_model=96, d_head=48, n_heads=2, n_layers=1, mlp=False),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=1000, batch_size=128, learning_rate=3e-3, warmup_steps=100, decay="cosine",
                weight_decay=5e-3, metrics_every=50,
            ),
            "published": Recipe(
                name="published", n_steps=25 * 293, batch_size=512, learning_rate=1e-3, decay="linear",
                final_rate=1e-4, weight_decay=5e-3, metrics_every=293,
            ),
        },
    ),
)  # fmt: skip
