"""The ways from the first head to the answers: through queries, keys and values of the second, or past it.

Pairs are relabelled sequences: all symbols move on, and the answer at every position with them. One way at a time
carries what the first head wrote on the other sequence (path patching). The effect is necessity or sufficiency, the
share of the difference between both sequences in the logit difference of answer and foil.

*Shows* by which input the second head reads the first. *Does not show* what it reads there.
"""

import xarray as xr

from mnemoscope import Batch, Edge, HookedModel, PromptPairs, Site, Task, patch_edges
from mnemoscope.analyses import effects
from mnemoscope.systems.markov.analyses.distances import chains_of

WAYS = ("q", "k", "v", "past")


def first_head_paths(model: HookedModel, task: Task, batch: Batch, *, seed: int = 0) -> xr.DataArray:
    """The effect of each way, mean over both directions, over `way`; NaN where both sequences get the same logits.

    Raises InputError for another task. The model has two layers, each of one head.
    """
    first, second = (Site(kind="z", layer=layer, head=0) for layer in (0, 1))
    edges = [Edge(writer=first, reader=second, through=way) for way in ("q", "k", "v")] + [Edge(writer=first)]
    pairs = PromptPairs.from_task(chains_of(task), batch, kind="relabel", seed=seed)
    found = effects(patch_edges(model, pairs, chosen=edges), refuse=False).ratio
    shares = found.isel(metric=0).mean("direction").values
    return xr.DataArray(shares, coords={"way": list(WAYS)}, name="effect", attrs={"unit": "share", "n": len(batch)})
