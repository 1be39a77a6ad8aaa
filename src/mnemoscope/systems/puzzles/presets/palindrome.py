"""Palindromes: two layers of two heads, attention only, as in the original."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

PRESETS.add(
    "palindrome",
    Preset(
        summary="is the sequence its own mirror image? 2 layers, 2 heads, d 28",
        task=Palindrome(),
        model=ModelSpec(d_model=28, d_head=14, n_heads=2, n_layers=2, mlp=False),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=2000, batch_size=256, learning_rate=3e-3, beta2=0.98, warmup_steps=100,
                decay="cosine", metrics_every=50,
            ),
            "published": Recipe(name="published", n_steps=15 * 196, batch_size=512, metrics_every=49),
        },
    ),
)  # fmt: skip
