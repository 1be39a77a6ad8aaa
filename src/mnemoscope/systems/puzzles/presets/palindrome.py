"""Palindromes: two layers of two heads, attention only, as in the original; and with another generator."""

from dataclasses import replace

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.puzzles.tasks.palindrome import Palindrome

_EPOCH = 196  # 100,000 sequences in batches of 512
_MODEL = ModelSpec(d_model=28, d_head=14, n_heads=2, n_layers=2, mlp=False)
_QUICK = Recipe(
    name="quick", n_steps=2000, batch_size=256, learning_rate=3e-3, beta2=0.98, warmup_steps=100, decay="cosine",
    metrics_every=50, checkpoint_steps=(),
)  # fmt: skip
PALINDROME = Preset(
    summary="is the sequence its own mirror image? 2 layers, 2 heads, d 28",
    task=Palindrome(),
    model=_MODEL,
    recipes={
        "quick": _QUICK,
        "published": Recipe(name="published", n_steps=15 * _EPOCH, batch_size=512, metrics_every=_EPOCH // 4),
    },
)
PRESETS.add("palindrome", PALINDROME)
PRESETS.add(
    "palindrome-uniform",
    replace(
        PALINDROME,
        summary="palindrome, with the number of redrawn values drawn uniformly",
        task=Palindrome(redrawn="uniform"),
    ),
)
