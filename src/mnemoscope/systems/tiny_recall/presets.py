"""Published configurations of permutation lookup, comparisons that separate width, heads and data, and the plan."""

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

_EPOCH = 391  # 100,000 fresh samples in batches of 256
QUICK = Recipe(
    name="quick", n_steps=4000, learning_rate=1e-2, beta2=0.98, warmup_steps=100, decay="cosine", metrics_every=25
)


def _preset(
    summary: str, *, repeats: float, epochs: int, n_values: int = 5, shuffle_x: bool = True, **model: int | bool
) -> Preset:
    return Preset(
        summary=summary,
        task=PermutationLookup(repeat_ratio=repeats, n_values=n_values, shuffle_x=shuffle_x),
        model=ModelSpec(**model),  # pyright: ignore[reportArgumentType]
        recipes={
            "quick": QUICK,
            "published": Recipe(name="published", n_steps=epochs * _EPOCH, metrics_every=_EPOCH // 4),
        },
    )


_PUBLISHED = {
    "v1": _preset("d 16, 1 head, no repeats", repeats=0.0, epochs=20, d_model=16, n_heads=1),
    "v2": _preset("d 32, 1 head, repeats", repeats=0.3, epochs=50, d_model=32, n_heads=1),
    "v3": _preset("d 32, 2 heads, repeats", repeats=0.3, epochs=50, d_model=32, n_heads=2),
    "d16h1": _preset("d 16, 1 head, repeats: v1's size on v3's data", repeats=0.3, epochs=50, d_model=16, n_heads=1),
}
_COMPARISONS = {
    "d16h2": _preset("d 16, 2 heads, repeats: a second head, no width", repeats=0.3, epochs=50, d_model=16, n_heads=2),
    "d64h1": _preset("d 64, 1 head, repeats: width, no second head", repeats=0.3, epochs=50, d_model=64, n_heads=1),
    "v3-fresh": _preset("v3's size without repeats", repeats=0.0, epochs=50, d_model=32, n_heads=2),
    **{
        f"d{width}": _preset(f"v1 with d {width}", repeats=0.0, epochs=20, d_model=width, n_heads=1)
        for width in (4, 8, 12, 24)
    },
    "v3-no-mlp": _preset("v3 without the MLP", repeats=0.3, epochs=50, d_model=32, n_heads=2, mlp=False),
    "v3-no-attention": _preset("v3 without attention", repeats=0.3, epochs=50, d_model=32, n_heads=2, attention=False),
    "v3-no-positions": _preset(
        "v3 without positional embeddings", repeats=0.3, epochs=50, d_model=32, n_heads=2, positions=False
    ),
    "v3-4-values": _preset("v3's size without repeats, V = 4", repeats=0, epochs=50, d_model=32, n_heads=2, n_values=4),
    "v1-ordered": _preset("v1 with x in one order", repeats=0.0, epochs=20, d_model=16, n_heads=1, shuffle_x=False),
}
_SEEDS = tuple(range(16, 32))
_UNSEEN = tuple(range(64, 80))
"""Of claims with criteria that were written after the smaller seeds had been looked at (`Claim.first_seed`)."""
_PER_SEED = tuple(range(100, 116))
"""Seeds of T4, which is asked per seed; before, it asked for a mean."""
_ASKED_ANEW = (
    "v1", "v2", "v3", "d16h1", "d16h2", "d64h1", "v3-fresh", "v3-4-values", "v3-no-mlp", "v3-no-positions", "v1-ordered"
)  # fmt: skip

for _name, _value in (_PUBLISHED | _COMPARISONS).items():
    PRESETS.add(_name, _value)
_PLAN = (
    TrainingSet(recipe="published", presets=("v1", "v3"), seeds=tuple(range(16, 48))),
    TrainingSet(recipe="published", presets=("v2", "d16h1", "v3-fresh", "d4", "d8", "d12"), seeds=_SEEDS),
    TrainingSet(recipe="quick", presets=(*_PUBLISHED, "v3-fresh", "d4", "d8", "d12"), seeds=_SEEDS),
    TrainingSet(
        recipe="published",
        presets=("v1", "v3"),
        seeds=_SEEDS,
        changes=(("model.normalization", "none"),),
        called="no-norm",
    ),
    TrainingSet(recipe="published", presets=("v1", "v2", "v3"), seeds=_UNSEEN),
    TrainingSet(recipe="quick", presets=_ASKED_ANEW, seeds=_UNSEEN),
    TrainingSet(recipe="quick", presets=("v3", "d16h1", "v3-no-mlp"), seeds=tuple(range(80, 100))),
    TrainingSet(recipe="published", presets=("v3",), seeds=tuple(range(80, 100))),
    *(TrainingSet(recipe=name, presets=("v1",), seeds=_PER_SEED, packed=False) for name in ("published", "quick")),
)
_NEW = (TrainingSet(recipe="quick", presets=("v3",), seeds=tuple(range(48, 64))),)
SYSTEMS.add(
    "tiny-recall",
    System(summary="elimination and recall in permutation lookup", quick=_NEW, full=_PLAN, default="v3"),
)
