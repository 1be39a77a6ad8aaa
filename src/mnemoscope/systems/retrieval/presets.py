"""Configurations of the retrieval problem, scaled down and as published, and what `reproduce` trains for them.

Scaled models are 64 wide, with four heads a layer and a narrow MLP, on batches of 64 fresh sequences. Three steps have
12 layers, as published: of fewer training uses the last ones for the first hops, and the last hop finds no room. They
start as GPT-2 did, whose recipe the source follows; without that scaling half of the models never learn the last hop.
Those of two steps start with TransformerLens's own weights.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.core import Clamp
from mnemoscope.systems.retrieval.tasks import Retrieval

_QUICK = Recipe(
    name="quick", n_steps=4000, batch_size=64, learning_rate=2e-3, beta2=0.98, warmup_steps=100, decay="cosine",
    weight_decay=0.1, metrics_every=50, checkpoint_steps=(*range(0, 2500, 25), *range(2500, 4000, 100)),
)  # fmt: skip
_QUICK_SCALED = replace(_QUICK, n_steps=2500, checkpoint_steps=(*range(0, 2500, 25),))
_PUBLISHED = Recipe(
    name="published", n_steps=10_000, batch_size=512, learning_rate=1e-3, weight_decay=0.1, metrics_every=100
)
_A_TO_C = replace(_PUBLISHED, n_steps=24_000, batch_size=128, checkpoint_steps=(*range(0, 24_000, 200),))
_D = replace(_PUBLISHED, n_steps=6400, batch_size=256, checkpoint_steps=(*range(0, 6400, 80),))
_SWEPT = {"model.d_model": 128, "model.d_mlp": 512, "model.n_heads": 8}
"""Published sizes of the models that were trained with 1 to 8 layers."""
_A = {"model.d_model": 128, "model.d_mlp": 512, "model.n_heads": 1}
"""Published sizes of transformers A, B and C."""


def _preset(
    summary: str,
    *,
    n_layers: int,
    scaled: bool = True,
    published: Recipe = _PUBLISHED,
    sizes: dict[str, Any],
    **task: Any,
) -> Preset:
    model = ModelSpec(
        d_model=64, n_heads=4, n_layers=n_layers, d_mlp=64, act_fn="gelu", positions=False,
        initialisation="gpt2-scaled" if scaled else "gpt2",
    )  # fmt: skip
    return Preset(
        summary=summary,
        task=Retrieval(**task),
        model=model,
        recipes={"quick": _QUICK_SCALED if scaled else _QUICK, "published": published},
        sizes={"published": sizes},
    )


_TRANSFORMER_D = {
    "model.d_model": 512, "model.n_heads": 1, "model.d_head": 16, "model.mlp": False, "model.d_mlp": None
}  # fmt: skip
_DEPTHS = {f"retrieval-2-{n}-layer{'s' * (n > 1)}": n for n in (1, 2, 3, 4)}
_CHAINS = {
    "retrieval-3": _preset("D = 3, whole chain", n_layers=12, published=_A_TO_C, sizes=_A),
    "retrieval-3-last": _preset("D = 3, last symbol only", n_layers=12, sizes=_SWEPT, whole_chain=False),
    **{
        name: _preset(f"D = 2, whole chain, layers: {n}", n_layers=n, scaled=False, sizes=_SWEPT, n_steps=2)
        for name, n in _DEPTHS.items()
    },
    "retrieval-4": _preset("D = 4, whole chain", n_layers=24, published=_D, sizes=_TRANSFORMER_D, n_steps=4),
    "retrieval-5": _preset("D = 5, whole chain", n_layers=8, sizes=_SWEPT, n_steps=5),
}
for _name, _value in _CHAINS.items():
    PRESETS.add(_name, _value)


def _part(recipe: str, presets: Iterable[str], seeds: range, **changes: Any) -> TrainingSet:
    return TrainingSet(recipe=recipe, presets=tuple(presets), seeds=tuple(seeds), changes=tuple(changes.items()))


HELD_IDEAL = (("recipe.clamps", (Clamp(place="L0H0 pattern", pattern="previous token"),)),)
"""A head of layer 0 attends to the position before from the first step: in a pair, the second symbol to the first."""
HELD_SEEDS = range(136, 160)
"""Seeds of these, and of `retrieval-3` beside them; smaller ones were looked at."""
_SYSTEM = System(
    summary="retrieval in several steps: stacked heads and the implicit curriculum",
    quick=(_part("quick", ("retrieval-3",), range(96, 100)),),
    full=(
        *(
            _part("published", ("retrieval-5", "retrieval-3-last"), range(8), **{"model.n_layers": n})
            for n in range(1, 9)
        ),
        _part("published", ("retrieval-3",), range(3)),
        _part("published", ("retrieval-4",), range(1)),
    ),
    shipped=(
        _part("quick", ("retrieval-3",), range(64, 88)),
        replace(_part("quick", ("retrieval-3-last",), range(64, 80)), packed=False),
        _part("quick", list(_DEPTHS)[:3], range(16, 32)),
        replace(_part("quick", ("retrieval-3",), range(112, 136)), packed=False),
        replace(_part("quick", ("retrieval-3",), HELD_SEEDS), packed=False),
        replace(_part("quick", ("retrieval-3",), HELD_SEEDS, **dict(HELD_IDEAL)), called="pairs-ideal", packed=False),
    ),
    compact=True,
)
SYSTEMS.add("retrieval", _SYSTEM)
