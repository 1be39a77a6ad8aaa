"""Configurations of the k-fold composition task: all numbers of hops at once, the longest alone, and two curricula.

Attention only, in both directions, 64 wide, four heads a layer; by construction log2 k + 1 layers are enough
(`constructed.doubling`). The sizes of the published experiments are not stated in the sources.
"""

from collections.abc import Iterable
from dataclasses import replace

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.core import Clamp, TaskChange
from mnemoscope.systems.k_hop.tasks import KHop

_QUICK = Recipe(
    name="quick", n_steps=1500, batch_size=128, learning_rate=1e-3, beta2=0.98, warmup_steps=100, metrics_every=25,
    checkpoint_steps=tuple(range(0, 1500, 25)),
)  # fmt: skip
_ENDS = replace(_QUICK, checkpoint_steps=())
_STAGE = 300
"""Steps after which a curriculum goes on: in trials one and two hops are learned in about that many each."""


def _curriculum(*stages: tuple[int, ...]) -> Recipe:
    """One stage after the other, of the numbers of hops that are asked for."""
    changes = [TaskChange(step=_STAGE * i, field="asked", value=asked) for i, asked in enumerate(stages)]
    return replace(_QUICK, task_changes=tuple(changes))


def _preset(summary: str, *, n_layers: int, task: KHop, recipe: Recipe = _QUICK, width: int = 64) -> Preset:
    return Preset(
        summary=summary,
        task=task,
        model=ModelSpec(d_model=width, n_heads=4, n_layers=n_layers, mlp=False, attention_dir="bidirectional"),
        recipes={"quick": recipe},
    )


_FOUR = KHop(n_functions=4, hops=(1, 2, 4))
_PRESETS = {
    "k-hop-2": _preset("1 and 2 hops, 2 layers", n_layers=2, task=KHop(n_functions=2, hops=(1, 2))),
    "k-hop-4": _preset("1, 2 and 4 hops, 3 layers", n_layers=3, task=_FOUR),
    "k-hop-4-2-layers": _preset("1, 2 and 4 hops, 2 layers", n_layers=2, task=_FOUR, recipe=_ENDS),
    "k-hop-4-alone": _preset(
        "4 hops alone, 3 layers", n_layers=3, task=replace(_FOUR, asked=(4,)), recipe=replace(_ENDS, n_steps=8000)
    ),
    "k-hop-4-curriculum": _preset(
        "1 hop, then 2 as well, then 4 as well", n_layers=3, task=_FOUR, recipe=_curriculum((1,), (1, 2), (1, 2, 4))
    ),
    "k-hop-4-stages": _preset(
        "1 hop, then 2 alone, then 4 alone", n_layers=3, task=_FOUR, recipe=_curriculum((1,), (2,), (4,))
    ),
    "k-hop-8": _preset(
        "1, 2, 4 and 8 hops, 4 layers", n_layers=4, task=KHop(n_functions=8, hops=(1, 2, 4, 8)),
        recipe=replace(_QUICK, n_steps=6000), width=128,
    ),
}  # fmt: skip
for _name, _value in _PRESETS.items():
    PRESETS.add(_name, _value)


def _part(presets: Iterable[str], seeds: range) -> TrainingSet:
    return TrainingSet(recipe="quick", presets=tuple(presets), seeds=tuple(seeds))


HELD_UNTIL = 300
"""Step up to which the first layer is held back; one hop is learned by step 200 without that."""
HELD_BACK = (("recipe.clamps", (Clamp(place="L0 attn_out", value="zero", stop=HELD_UNTIL),)),)
"""The attention of the first layer writes nothing up to that step."""
_JUDGED = ("k-hop-4", "k-hop-4-2-layers", "k-hop-4-alone", "k-hop-4-curriculum", "k-hop-4-stages")
SYSTEMS.add(
    "k-hop",
    System(
        summary="composition of functions from context and weights: depth, curricula and intermediate results",
        quick=(_part(_JUDGED, range(48, 52)),),
        full=(_part(("k-hop-8",), range(4)),),
        shipped=(
            _part(_JUDGED, range(16, 32)),
            TrainingSet(
                recipe="quick",
                presets=("k-hop-4",),
                seeds=tuple(range(16, 32)),
                changes=HELD_BACK,
                called="first-layer-late",
            ),
        ),
        compact=True,
    ),
)
