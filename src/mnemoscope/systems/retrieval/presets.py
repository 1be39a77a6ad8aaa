"""Configurations of the retrieval problem; scaled ones, and those of the source under the recipe `published`."""

from typing import Any

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.retrieval.tasks import Retrieval

_QUICK = Recipe(
    name="quick", n_steps=5000, batch_size=64, learning_rate=1e-3, warmup_steps=100, weight_decay=0.1, metrics_every=50
)
_PUBLISHED = Recipe(name="published", n_steps=10_000, batch_size=512, learning_rate=1e-3, weight_decay=0.1)


def _preset(summary: str, *, n_layers: int, n_heads: int = 4, **task: Any) -> Preset:
    model = ModelSpec(d_model=64, n_heads=n_heads, n_layers=n_layers, d_mlp=256, act_fn="gelu", positions=False)
    return Preset(
        summary=summary,
        task=Retrieval(**task),
        model=model,
        recipes={"quick": _QUICK, "published": _PUBLISHED},
        sizes={"published": {"model.d_model": 128, "model.d_mlp": 512}},
    )


PRESETS.add("retrieval-2", _preset("D = 2, whole chain, 4 layers", n_layers=4, n_steps=2))
