"""Signs of running sums: one layer of one head and eight neurons without normalisation, as in the original."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.running_sum import RunningSum

PRESETS.add(
    "running-sum",
    Preset(
        summary="is the sum so far negative, zero or positive? 1 layer, 1 head, d 24, MLP of 8",
        task=RunningSum(),
        model=ModelSpec(d_model=24, d_head=12, n_heads=1, n_layers=1, d_mlp=8, normalization="none"),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=1000, batch_size=128, learning_rate=3e-3, warmup_steps=100, decay="cosine",
                weight_decay=0.01, metrics_every=50,
            ),
            "published": Recipe(
                name="published", n_steps=20 * 293, batch_size=512, learning_rate=1e-3, decay="linear",
                final_rate=1e-4, weight_decay=0.01, metrics_every=293,
            ),
        },
    ),
)  # fmt: skip
