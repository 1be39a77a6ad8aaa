"""The sum of two numbers: two layers of three heads, attention only, as in the original."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.digit_sum import DigitSum

PRESETS.add(
    "digit-sum",
    Preset(
        summary="the sum of two numbers of four digits; 2 layers, 3 heads, d 48",
        task=DigitSum(),
        model=ModelSpec(d_model=48, d_head=24, n_heads=3, n_layers=2, mlp=False),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=2000, batch_size=128, learning_rate=3e-3, beta2=0.98, warmup_steps=100,
                decay="cosine", metrics_every=50,
            ),
            "published": Recipe(
                name="published", n_steps=100 * 196, batch_size=512, learning_rate=2e-3, decay="linear",
                final_rate=1e-4, weight_decay=1e-3, metrics_every=196,
            ),
        },
    ),
)  # fmt: skip
