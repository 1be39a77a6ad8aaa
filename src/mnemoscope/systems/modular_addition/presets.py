"""Published configurations of modular addition, and their quick recipes.

Zhong et al. 2023 mix attention with a constant: c softmax + 1 - c. `addition-c1` is plain softmax attention, in
`addition-c0` every weight is 1, and `addition-c175` to `addition-c825` are the middles of the four bins between them
(.175, .375, .625, .825). `published` is their recipe, `quick` the same with p = 31 and half the width, at three times
the rate. `addition-nanda` is the model of Nanda et al. 2023.
"""

from dataclasses import replace

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.systems.modular_addition.tasks import ModularAddition

MIXES = {
    "addition-c0": 0.0,
    "addition-c175": 0.175,
    "addition-c375": 0.375,
    "addition-c625": 0.625,
    "addition-c825": 0.825,
    "addition-c1": 1.0,
}
"""The share of the softmax in attention, by preset."""
_PUBLISHED = Recipe(
    name="published", n_steps=20_000, learning_rate=1e-3, weight_decay=2.0, beta2=0.98, warmup_steps=10,
    full_batch=True, metrics_every=100,
)  # fmt: skip
_QUICK = replace(
    _PUBLISHED, name="quick", n_steps=1000, learning_rate=3e-3, metrics_every=10, checkpoint_steps=(), save_every=500
)
_MODEL = ModelSpec(
    d_model=128, n_heads=4, d_mlp=512, normalization="none", initialisation="by-width", attention_dir="bidirectional"
)
_SMALL = {"task.modulus": 31, "model.d_model": 64, "model.d_mlp": 256}

_PRESETS = {
    **{
        name: Preset(
            summary=f"a + b mod p, attention of {mix:g} softmax + {1 - mix:g}",
            task=ModularAddition(modulus=59),
            model=replace(_MODEL, attention_mix=mix),
            recipes={"quick": _QUICK, "published": _PUBLISHED},
            sizes={"quick": _SMALL},
        )
        for name, mix in MIXES.items()
    },
    "addition-nanda": Preset(
        summary="a b =, p = 113, 30 % of the sums train, causal",
        task=ModularAddition(modulus=113, equals=True, train_share=0.3),
        model=replace(_MODEL, attention_dir="causal"),
        recipes={
            "quick": replace(_QUICK, weight_decay=1.0, n_steps=2000),
            "published": replace(_PUBLISHED, n_steps=40_000, weight_decay=1.0),
        },
        sizes={"quick": {**_SMALL, "task.train_share": 0.6}},
    ),
}
for _name, _value in _PRESETS.items():
    PRESETS.add(_name, _value)

NO_DECAY = (("recipe.weight_decay", 0.0),)
_SEEDS = tuple(range(32, 48))
_JUDGED = (
    TrainingSet(recipe="quick", presets=("addition-c1", "addition-c0"), seeds=_SEEDS),
    TrainingSet(recipe="quick", presets=tuple(MIXES)[1:-1], seeds=_SEEDS, packed=False),
    TrainingSet(
        recipe="quick", presets=("addition-c1",), seeds=_SEEDS, changes=NO_DECAY, called="no-decay", packed=False
    ),
)
SYSTEMS.add(
    "modular-addition",
    System(
        summary="clocks and pizzas: addition modulo p, with attention mixed with a constant",
        quick=(TrainingSet(recipe="quick", presets=tuple(MIXES), seeds=(48, 49)),),
        full=(TrainingSet(recipe="published", presets=("addition-c1", "addition-c0"), seeds=tuple(range(32, 36))),),
        shipped=_JUDGED,
        compact=True,
    ),
)
