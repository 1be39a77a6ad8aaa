"""Configurations of both systems, and what `reproduce` trains for them.

On in-context bigrams generic and associative-memory transformers, on noisy recall a generic one.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mnemoscope import PRESETS, SYSTEMS, Freeze, ModelSpec, Preset, Recipe, System, Task, TrainingSet
from mnemoscope.core import Clamp
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams, NoisyRecall

FREE_AT = 300
"""Step from which parameters that are held back move, as in the source."""
_LONG = 3600
"""Steps of the long recipe."""
_FROZEN = ("embed.W_E", "pos_embed.W_pos", "unembed.W_U", "blocks.*.attn.W_[QV]", "blocks.0.attn.W_O", "*.mlp.W_in")


def generic(summary: str, task: Task, *, n_steps: int, n_layers: int = 2, published: tuple[int, int]) -> Preset:
    """A transformer without normalisation, with layers of one head, of which everything is learned.

    Tasks have 128 tokens (published: 256). `n_steps` is of the quick recipe; `published` gives the widths of the
    residual stream and of the MLPs in the published one.
    """
    quick = Recipe(
        name="quick", n_steps=n_steps, batch_size=32, learning_rate=6e-3, beta2=0.98, metrics_every=25,
        checkpoint_steps=tuple(range(0, n_steps, 25)),
    )  # fmt: skip
    long = replace(
        quick, name="long", n_steps=_LONG, checkpoint_steps=(*range(0, n_steps, 25), *range(n_steps, _LONG, 100))
    )
    return Preset(
        summary=summary,
        task=task,
        model=ModelSpec(d_model=64, n_heads=1, n_layers=n_layers, d_mlp=64, normalization="none"),
        recipes={
            "quick": quick,
            "long": long,
            "published": Recipe(name="published", n_steps=4000, batch_size=512, learning_rate=1e-3, metrics_every=25),
        },
        sizes={"published": {"task.length": 256, "model.d_model": published[0], "model.d_mlp": published[1]}},
    )


def plan(summary: str, presets: Iterable[str], *shipped: TrainingSet) -> System:
    """The trainings of a system: 4 quick seeds, 16 published ones; shipped are 16 quick ones, or the sets given."""
    names = tuple(presets)
    return System(
        summary=summary, quick=(_part("quick", 48, 4, names),), full=(_part("published", 16, 16, names),),
        shipped=shipped or (_part("quick", 16, 16, names),), compact=True,
    )  # fmt: skip


def _part(recipe: str, first: int, n: int, presets: Iterable[str], **changes: Any) -> TrainingSet:
    seeds = tuple(range(first, first + n))
    return TrainingSet(recipe=recipe, presets=tuple(presets), seeds=seeds, changes=tuple(changes.items()))


def _generic(summary: str, *, n_steps: int = 800, n_layers: int = 2, **task: Any) -> Preset:
    """A generic transformer on all tokens."""
    bigrams = InContextBigrams(**{"length": 128, **task})
    return generic(summary, bigrams, n_steps=n_steps, n_layers=n_layers, published=(128, 512))


def _memories(summary: str, *, late: tuple[str, ...] = (), feed_forward: bool = False, **task: Any) -> Preset:
    """The simplified transformer: random frozen embeddings, one head per layer, three matrices learned (and W_F)."""
    width, n_steps = 96, 800 if feed_forward else 600
    model = ModelSpec(
        d_model=width, n_heads=1, n_layers=2, d_mlp=width, mlp=feed_forward, first_mlp=int(feed_forward),
        act_fn="identity", normalization="none", initialisation="memories",
    )  # fmt: skip
    frozen = tuple(Freeze(parameters=name) for name in _FROZEN if feed_forward or "mlp" not in name)
    quick = Recipe(
        name="quick", n_steps=n_steps, batch_size=32, learning_rate=3e-3, metrics_every=10,
        checkpoint_steps=(*range(0, 300, 10), *range(300, n_steps, 20)),
        frozen=(*frozen, *(Freeze(parameters=name, stop=FREE_AT) for name in late)),
    )  # fmt: skip
    published = Recipe(
        name="published", optimizer="sgd", n_steps=1000, batch_size=512, learning_rate=0.2 if feed_forward else 0.03,
        weight_decay=1e-4, metrics_every=10, checkpoint_steps=tuple(range(0, 1000, 10)),
        frozen=(*frozen, *(Freeze(parameters=name, stop=FREE_AT) for name in late)),
    )  # fmt: skip
    n_sgd = 2500 if feed_forward else 600
    sgd = replace(
        published, name="sgd", n_steps=n_sgd, batch_size=64, learning_rate=0.2,
        checkpoint_steps=(*range(0, 600, 10), *range(600, n_sgd, 50)),
    )  # fmt: skip
    return Preset(
        summary=summary,
        task=InContextBigrams(**{"length": 128, **task}),
        model=model,
        recipes={"quick": quick, "sgd": sgd, "published": published},
        sizes={
            "published": {"task.length": 256, "model.d_model": 256, "model.d_mlp": 256},
            "sgd": {"model.d_model": 128, "model.d_mlp": 128},
        },
    )


_KEYS = "blocks.*.attn.W_K"
_OUTPUT = "blocks.1.attn.W_O"
_ALONE: dict[str, Any] = {"triggers": "fixed", "loss_on": "predictable"}
_BIRTH = {
    "birth-1-layer": _generic("1 layer, fixed triggers", n_layers=1, triggers="fixed"),
    "birth-fixed": _generic("2 layers, fixed triggers, the most frequent tokens", triggers="fixed"),
    "birth-rare": _generic("2 layers, fixed triggers, less frequent tokens", triggers="fixed", first_rank=10),
    "birth-2-layers": _generic("2 layers, random triggers", n_steps=1200),
    "memories": _memories("associative memories, predictable tokens: all learned together", **_ALONE),
    "memories-keys-late": _memories("the same; W_K of both layers held back", late=(_KEYS,), **_ALONE),
    "memories-output-late": _memories("the same; W_O of layer 2 held back", late=(_OUTPUT,), **_ALONE),
    "memories-all": _memories("associative memories and a linear W_F, all tokens", feed_forward=True, triggers="fixed"),
    "memories-all-bigram": _memories(
        "the same; outputs drawn from the bigrams", feed_forward=True, triggers="fixed", outputs="bigram"
    ),
}

for _name, _preset in _BIRTH.items():
    PRESETS.add(_name, _preset)

HELD: dict[str, tuple[tuple[str, Any], ...]] = {
    "perfect output": (("recipe.clamps", (Clamp(ideal="perfect-output"),)),),
    "perfect previous": (("recipe.clamps", (Clamp(place="L0H0 pattern", pattern="previous token"),)),),
}
"""Changes of `memories` that hold W_O^2, or the attention of layer 0, at its ideal form from the first step."""
HELD_SEEDS = 64
"""The first seed of these, and of `memories` beside them; smaller ones were looked at."""
EARLY_SEEDS = 80
"""The first seed of B14-early, which was put after B14 had been judged."""
_N_EARLY = 120
EARLY: tuple[tuple[str, Any], ...] = (
    ("recipe.n_steps", _N_EARLY),
    ("recipe.checkpoint_steps", tuple(range(_N_EARLY))),
)
"""The first steps of `sgd`, all of them kept."""
_STAGED = ("memories", "memories-keys-late", "memories-output-late")
_SHIPPED = (
    _part("quick", 16, 16, (name for name in _BIRTH if name not in _STAGED)),
    _part("long", 32, 16, ("birth-1-layer", "birth-fixed", "birth-2-layers", "birth-rare")),
    _part("quick", 32, 16, _STAGED),
    _part("sgd", 32, 16, (*_STAGED, "memories-all", "memories-all-bigram")),
    replace(_part("sgd", 32, 16, ("memories",), **{"task.n_triggers": 20}), called="20-triggers"),
    *(
        replace(
            _part("sgd", first, 16, ("memories",), **dict((*kept, *held))),
            called="-".join((*name.split(), *word)),
            packed=False,
        )
        for first, kept, word in ((HELD_SEEDS, (), ()), (EARLY_SEEDS, EARLY, ("early",)))
        for name, held in {"": (), **HELD}.items()
    ),
)
SYSTEMS.add("birth", plan("in-context bigrams: the formation of an induction head", _BIRTH, *_SHIPPED))

_SUMMARY = "2 layers, fixed triggers, half of the outputs replaced by noise"
PRESETS.add("noisy-recall", generic(_SUMMARY, NoisyRecall(length=128), n_steps=1000, published=(256, 1024)))
_NOISY = ("noisy-recall",)
SYSTEMS.add(
    "noisy-recall",
    plan(
        "in-context recall in competition with a frequent noise token", _NOISY,
        _part("quick", 16, 16, _NOISY), _part("long", 32, 16, _NOISY),
        replace(_part("quick", 64, 16, _NOISY), packed=False),
    ),
)  # fmt: skip
