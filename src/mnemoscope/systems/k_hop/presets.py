"""Configurations of the k-fold composition task: two and four functions, learned from a mixture of hop numbers.

Attention only, in both directions, of four heads a layer. By construction log2 k + 1 layers are enough
(`constructed.doubling`).
"""

from mnemoscope import PRESETS, ModelSpec, Preset, Recipe
from mnemoscope.systems.k_hop.tasks import KHop

_QUICK = Recipe(name="quick", n_steps=4000, batch_size=128, learning_rate=1e-3, warmup_steps=100, metrics_every=50)


def _preset(summary: str, *, n_layers: int, n_functions: int, hops: tuple[int, ...]) -> Preset:
    return Preset(
        summary=summary,
        task=KHop(n_functions=n_functions, hops=hops),
        model=ModelSpec(d_model=64, n_heads=4, n_layers=n_layers, mlp=False, attention_dir="bidirectional"),
        recipes={"quick": _QUICK},
    )


PRESETS.add("k-hop-2", _preset("two functions, 1 and 2 hops", n_layers=2, n_functions=2, hops=(1, 2)))
PRESETS.add("k-hop-4", _preset("four functions, 1, 2 and 4 hops", n_layers=3, n_functions=4, hops=(1, 2, 4)))
