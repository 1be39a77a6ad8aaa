"""Published configurations of in-context Markov chains, and their quick recipes.

Edelman et al. 2024: two layers of attention alone with one head each, width 16, vectors of distances. Their recipe is
short, so that `quick` is the same for fewer steps. `markov-trigrams` has two heads in each layer, since two earlier
symbols have to be found. There, and with eight symbols, `quick` has four times the rate: at the published one trigrams
stay at the bigram for 1,600 steps and more, and eight symbols at the unigram for 1,200. `markov-chains-4` to
`markov-chains-256` have MLPs and finitely many chains (Park et al. 2024, whose models are larger).
"""

from dataclasses import replace

from mnemoscope import PRESETS, SYSTEMS, ModelSpec, Preset, Recipe, System, TrainingSet
from mnemoscope.core import TaskChange
from mnemoscope.systems.markov.tasks import MarkovChains

EVERY = 25
"""Steps between two checkpoints."""
_PUBLISHED = Recipe(
    name="published", n_steps=2000, batch_size=64, learning_rate=5e-4, beta2=0.95, weight_decay=0.1, clip_norm=1.0,
    metrics_every=EVERY, checkpoint_steps=tuple(range(0, 2000, EVERY)), save_every=500,
)  # fmt: skip
_MODEL = ModelSpec(
    d_model=16, n_heads=1, n_layers=2, mlp=False, initialisation="small", position_kind="relative",
)  # fmt: skip
N_CHAINS = (4, 16, 64, 256)
"""Numbers of chains of the presets that have finitely many."""


def _quick(n_steps: int, recipe: Recipe = _PUBLISHED) -> Recipe:
    return replace(recipe, name="quick", n_steps=n_steps, checkpoint_steps=tuple(range(0, n_steps, EVERY)))


def _preset(summary: str, task: MarkovChains, *, quick: Recipe | None = None) -> Preset:
    recipes = {"quick": quick or _quick(1500), "published": _PUBLISHED}
    return Preset(summary=summary, task=task, model=_MODEL, recipes=recipes)


UNIGRAM_STEPS = 300
"""Steps of chains with equal rows before the doubly stochastic ones of the curriculum."""
_AFTER_UNIGRAM = (
    TaskChange(step=0, field="doubly_stochastic", value=0.0),
    TaskChange(step=0, field="equal_rows", value=1.0),
    TaskChange(step=UNIGRAM_STEPS, field="equal_rows", value=0.0),
    TaskChange(step=UNIGRAM_STEPS, field="doubly_stochastic", value=1.0),
)
_FASTER = replace(_PUBLISHED, learning_rate=2e-3)
_PRESETS = {
    "markov-2": _preset("2 symbols", MarkovChains(n_symbols=2)),
    "markov-3": _preset("3 symbols", MarkovChains()),
    "markov-8": _preset("8 symbols", MarkovChains(n_symbols=8), quick=_quick(1500, _FASTER)),
    "markov-doubly-stochastic": _preset(
        "3 symbols, all equally frequent: the unigram says nothing", MarkovChains(doubly_stochastic=1.0)
    ),
    "markov-after-unigram": Preset(
        summary=f"the same after {UNIGRAM_STEPS} steps of chains of which only the unigram says anything",
        task=MarkovChains(doubly_stochastic=1.0),
        model=_MODEL,
        recipes={
            "quick": replace(_quick(1500 + UNIGRAM_STEPS), task_changes=_AFTER_UNIGRAM),
            "published": replace(_PUBLISHED, task_changes=_AFTER_UNIGRAM),
        },
    ),
    "markov-mixture": _preset("3 symbols, equal rows in half of the chains", MarkovChains(equal_rows=0.5)),
    "markov-trigrams": Preset(
        summary="2 symbols, of which the last two decide (n = 3)",
        task=MarkovChains(n_symbols=2, order=2),
        model=replace(_MODEL, n_heads=2, d_head=16),
        recipes={"quick": _quick(1000, _FASTER), "published": _PUBLISHED},
    ),
    **{
        f"markov-chains-{n}": Preset(
            summary=f"3 symbols, {n} chains that are the same throughout",
            task=MarkovChains(n_chains=n),
            model=replace(_MODEL, d_model=32, mlp=True, d_mlp=64),
            recipes={"quick": _quick(2000, _FASTER), "published": replace(_FASTER, n_steps=4000)},
        )
        for n in N_CHAINS
    },
}
for _name, _value in _PRESETS.items():
    PRESETS.add(_name, _value)

_SEEDS = tuple(range(32, 48))
_OTHERS = ("markov-mixture", "markov-chains-16", "markov-chains-64")
"""Presets that no verdict rests on; their runs are not packed."""
_JUDGED = tuple(name for name in _PRESETS if name not in _OTHERS)
SYSTEMS.add(
    "markov",
    System(
        summary="in-context Markov chains: statistical induction heads, and the predictors that training passes",
        quick=(TrainingSet(recipe="quick", presets=("markov-3", "markov-doubly-stochastic"), seeds=(48, 49)),),
        full=(TrainingSet(recipe="published", presets=tuple(_PRESETS), seeds=tuple(range(32, 36))),),
        shipped=(
            TrainingSet(recipe="quick", presets=_JUDGED, seeds=_SEEDS),
            TrainingSet(recipe="quick", presets=_OTHERS, seeds=_SEEDS, packed=False),
        ),
        compact=True,
    ),
)
