"""Whether every edge of a circuit is needed in it.

For an edge e of the circuit C, or all edges of C into and out of a part,

    loss(e) = faithfulness(C) - faithfulness(C - e).

C is minimal in the weak sense if no single edge can be dropped so that faithfulness stays at least at the target. That
no set of edges can be dropped is more, and `exact` alone tells. Wang et al. 2022 ("Interpretability in the wild") ask
whether a part matters without *some* set K of others; this is their score for the empty K, relative to the whole
model's difference from the empty circuit.

It shows what each edge adds given the rest of the circuit. It does not show what it adds to the model: where two edges
of the circuit do the same, neither is needed.
"""

import numpy as np
import xarray as xr

from mnemoscope.analyses.discovery.circuit import nodes
from mnemoscope.analyses.discovery.completeness import one
from mnemoscope.analyses.discovery.setting import ROUNDING, TARGET, Setting
from mnemoscope.core.edge import LOGITS, coordinates
from mnemoscope.core.errors import in_range


def minimality(setting: Setting, circuit: xr.DataArray, *, target: float = TARGET) -> xr.Dataset:
    """What a circuit loses with each of its edges and parts.

    Args:
        setting: What it is measured on.
        circuit: Truth values over edge.
        target: Faithfulness that is enough.

    Returns:
        `loss` and `needed` over edge: NaN and False outside the circuit; needed: without it the target is missed.
        `node_loss` over node, its heads and MLPs. `faithfulness` of the circuit, and `minimal`: whether it reaches the
        target and needs all its edges.

    Raises:
        InputError: It is no circuit of the model or has no edge, or as `Setting.span`.
    """
    in_range("target", target, 0, 1)
    inside = one(setting, circuit)
    names = coordinates(setting.edges)
    writer, reader = (np.array(names[end][1]) for end in ("writer", "reader"))
    sources = {str(name) for name in writer} - {str(name) for name in reader}
    parts = [name for name in nodes(circuit) if name not in (LOGITS, *sources)]
    numbers = np.flatnonzero(inside)
    masks = np.tile(inside, (1 + len(numbers) + len(parts), 1))
    masks[np.arange(1, 1 + len(numbers)), numbers] = False
    for row, name in enumerate(parts, 1 + len(numbers)):
        masks[row, (writer == name) | (reader == name)] = False
    found = setting.faithfulness(masks)
    left = found[1 : 1 + len(numbers)]
    loss, needed = np.full(len(inside), np.nan), np.zeros(len(inside), dtype=bool)
    loss[numbers], needed[numbers] = found[0] - left, left < target - ROUNDING
    return xr.Dataset(
        {
            "loss": ("edge", loss),
            "needed": ("edge", needed),
            "node_loss": ("node", found[0] - found[1 + len(numbers) :]),
            "faithfulness": found[0],
            "minimal": bool(found[0] >= target - ROUNDING and needed[inside].all()),
        },
        coords={**names, "node": parts},
        attrs={
            **setting.attrs,
            "target": target,
            "unit": "share of the difference between the model and the empty circuit",
        },
    )
