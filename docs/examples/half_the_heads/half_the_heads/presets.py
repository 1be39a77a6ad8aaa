"""The seeds that the claim half-the-heads is judged on, fixed before they are trained."""

import mnemoscope as ms

SEEDS = tuple(range(100, 116))
PLAN = (ms.TrainingSet(recipe="quick", presets=("facts-wide",), seeds=SEEDS, packed=False),)

ms.SYSTEMS.add("half-the-heads", ms.System(summary="heads that a trained layer can spare", quick=PLAN, full=PLAN))
