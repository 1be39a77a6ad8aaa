"""Measures of every checkpoint: loss and accuracy, each head of the last layer, and the progress of subcircuits.

| measure | what it is |
| --- | --- |
| `loss`, `accuracy` | on unseen labellings |
| `strength_L1H0` and so on | attention to the right label less that to the other |
| `alone_L1H0` and so on | accuracy with that head of the last layer alone |
| `without_L1H0` and so on | accuracy without it |
| `previous` | attention from labels to the exemplars before them, of the best head of the first layer |
| `copy`, `routing`, `match` | progress of subcircuits (`subcircuits`) |

All checkpoints of a run see the same sequences. A clamp of training is not in force: the model is measured as it is.
"""

import xarray as xr

from mnemoscope import HookedModel, Task
from mnemoscope import generator as stream
from mnemoscope.systems.induction_formation.analyses.heads import heads_alone, strengths
from mnemoscope.systems.induction_formation.analyses.subcircuits import SUBCIRCUITS, progress

N_TRACKED = 256
"""Sequences: there are many checkpoints."""


def trajectory(model: HookedModel, task: Task, *, seed: int, n: int = N_TRACKED) -> xr.Dataset:
    """All measures of one checkpoint: scalars, float64, on sequences of the seed's stream `tracked`."""
    batch = task.sample(n, split="test", generator=stream(seed, "tracked"))
    strong, kept, parts = strengths(model, batch), heads_alone(model, batch), progress(model, batch)
    by_head = {"strength": strong.induction} | {name: kept.accuracy.sel(kept=name) for name in ("alone", "without")}
    return xr.Dataset(
        {
            "loss": float(kept.all_loss),
            "accuracy": float(kept.all_accuracy),
            **{
                f"{name}_{head}": float(values.sel(head=head))
                for name, values in by_head.items()
                for head in strong["head"].values.tolist()
            },
            "previous": float(strong.previous.max()),
            **{name: float(parts.sel(subcircuit=name)) for name in SUBCIRCUITS},
        },
        attrs={"unit": "loss: nats; the rest: share", "n_sequences": n},
    )
