"""Balanced brackets: three layers of two heads with MLPs, attention in both directions, padding masked."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.brackets import PAD, Brackets

PRESETS.add(
    "brackets",
    Preset(
        summary="are the brackets balanced? 3 layers, 2 heads, d 56, attention in both directions",
        task=Brackets(),
        model=ModelSpec(
            d_model=56, d_head=28, n_heads=2, n_layers=3, d_mlp=56, attention_dir="bidirectional", masked=PAD
        ),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=1200, batch_size=64, learning_rate=2e-3, beta2=0.98, warmup_steps=100,
                decay="cosine", metrics_every=100, checkpoint_steps=(),
            ),
            "published": Recipe(name="published", n_steps=10 * 196, batch_size=512, metrics_every=49),
        },
    ),
)  # fmt: skip
