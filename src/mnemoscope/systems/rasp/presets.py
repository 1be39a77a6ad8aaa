"""A transformer that learns a program by training, to lie beside the one that Tracr compiled."""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.rasp.tasks import Rasp

PRESETS.add(
    "rasp",
    Preset(
        summary="what a RASP program answers (task.program), learned: 2 layers, 2 heads, attention in both directions",
        task=Rasp(),
        model=ModelSpec(d_model=32, n_heads=2, n_layers=2, attention_dir="bidirectional"),
        recipes={
            "quick": Recipe(
                name="quick", n_steps=1000, batch_size=64, learning_rate=3e-3, warmup_steps=50, decay="cosine",
                metrics_every=100,
            )
        },
    ),
)  # fmt: skip
