"""Configurations of factual recall: the middle of the published grid, and linear attention.

One layer without positions, whose embeddings are drawn once and stay. The query token has no embedding of its own: it
asks with the bias of the queries, and the residual stream of its position holds what attention and MLP write there,
since the published model leaves the query's own residual out.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.systems.factual_recall.tasks import FactualRecall

_ONE_LAYER: dict[str, Any] = {"positions": False, "normalization": "none", "embeddings": "frozen", "silent": -1}
GRID = ModelSpec(d_model=32, n_heads=8, d_head=8, d_mlp=32, initialisation="normal", **_ONE_LAYER)
"""The middle of the grid over heads and MLP widths."""
_LINEAR = FactualRecall(n_subjects=16, n_relations=4, n_noise=20, facts="ordered")
LINEAR = ModelSpec(
    d_model=_LINEAR.d_vocab, n_heads=1, d_head=_LINEAR.d_vocab, mlp=False, softmax=False, initialisation="one-hot",
    **_ONE_LAYER,
)  # fmt: skip
"""Linear attention on one-hot embeddings: one vector says where to look, one matrix what is written."""
_PUBLISHED = Recipe(name="published", n_steps=2**14, batch_size=1024, learning_rate=1e-2, metrics_every=128)
_QUICK = Recipe(name="quick", n_steps=2**11, batch_size=256, learning_rate=1e-2, metrics_every=64)
_EARLY = replace(_QUICK, n_steps=2**12, checkpoint_steps=(), stop_at=0.99)
_ADAM = Recipe(
    name="quick", n_steps=2**10, batch_size=128, learning_rate=1e-3, metrics_every=16,
    checkpoint_steps=tuple(range(0, 2**10, 16)),
)  # fmt: skip
_DESCENT = Recipe(
    name="published", n_steps=2**13, batch_size=1024, optimizer="sgd", learning_rate=0.1, momentum=0.0,
    metrics_every=64, checkpoint_steps=tuple(range(0, 2**13, 128)),
)  # fmt: skip

PRESETS.add(
    "facts",
    Preset(
        summary="32 x 32 facts, 8 heads, MLP of 32",
        task=FactualRecall(),
        model=GRID,
        recipes={"quick": _QUICK, "published": _PUBLISHED},
    ),
)
PRESETS.add(
    "facts-linear",
    Preset(
        summary="16 x 4 facts, linear attention on one-hot embeddings, gradient descent",
        task=_LINEAR,
        model=LINEAR,
        recipes={"quick": replace(_DESCENT, name="quick", batch_size=128), "published": _DESCENT},
    ),
)
PRESETS.add(
    "facts-linear-drawn",
    Preset(
        summary="the same, with facts and initial weights drawn by the seed",
        task=replace(_LINEAR, facts="random"),
        model=replace(LINEAR, initial_size=1e-5),
        recipes={"quick": replace(_DESCENT, name="quick", batch_size=128), "published": _DESCENT},
    ),
)
PRESETS.add(
    "facts-softmax",
    Preset(
        summary="the same 16 x 4 facts, softmax attention on random embeddings, MLP, Adam",
        task=_LINEAR,
        model=GRID,
        recipes={"quick": _ADAM},
    ),
)
WIDTHS = {"facts-narrow": 2, "facts-middle": 8, "facts-wide": 64}
"""Models of 8 heads that differ in the number of neurons."""
for _name, _width in WIDTHS.items():
    PRESETS.add(
        _name,
        Preset(
            summary=f"16 x 16 facts, 8 heads, MLP of {_width}",
            task=FactualRecall(n_subjects=16, n_relations=16),
            model=replace(GRID, d_mlp=_width),
            recipes={"quick": _EARLY},
        ),
    )


def _part(presets: Iterable[str], seeds: range, *, recipe: str = "quick") -> TrainingSet:
    return TrainingSet(recipe=recipe, presets=tuple(presets), seeds=tuple(seeds))


SYSTEMS.add(
    "factual-recall",
    System(
        summary="facts about subjects and relations: where they are stored, and in which order they are learned",
        quick=(_part(("facts-linear", "facts-linear-drawn", "facts-softmax", *WIDTHS), range(48, 52)),),
        full=(_part(("facts", "facts-linear"), range(4), recipe="published"),),
        shipped=(
            _part(("facts-linear", "facts-softmax"), range(16, 32)),
            _part(WIDTHS, range(16, 36)),
            _part(("facts-linear",), range(16, 32), recipe="published"),
            replace(_part(("facts-linear-drawn",), range(64, 80)), packed=False),
        ),
        compact=True,
    ),
)
