"""A small model of matching brackets, and the plan for `mnemoscope reproduce`."""

import mnemoscope as ms
from bracket_lab.tasks import MatchingBrackets

QUICK = ms.Recipe(name="quick", n_steps=200, learning_rate=1e-2, beta2=0.98, warmup_steps=50, decay="cosine")
PLAN = (ms.TrainingSet(recipe="quick", presets=("matching-brackets",), seeds=tuple(range(16, 32)), packed=False),)

ms.PRESETS.add(
    "matching-brackets",
    ms.Preset(
        summary="d 32, 2 layers of 2 heads, 4 pairs of 3 types",
        task=MatchingBrackets(),
        model=ms.ModelSpec(d_model=32, n_heads=2, n_layers=2),
        recipes={"quick": QUICK},
    ),
)
ms.SYSTEMS.add("bracket-lab", ms.System(summary="matching brackets", quick=PLAN, full=PLAN))
