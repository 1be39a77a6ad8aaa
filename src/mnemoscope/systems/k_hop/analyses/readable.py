"""The layer after which the result of every number of hops can be read linearly from the residual stream.

*Shows* what could be read there. *Does not show* that the model does: `analyses.halves` changes what stands there.
"""

import xarray as xr

from mnemoscope import HookedModel, Site, generator, probe
from mnemoscope.systems.k_hop.tasks import KHop

N_SEQUENCES = 192
"""Half to fit and half to test on; every place of them is a row."""
N_SHUFFLES = 3


def readable(model: HookedModel, untrained: HookedModel, task: KHop, *, seed: int) -> xr.Dataset:
    """One probe for all places, for every number of hops and layer, with its controls.

    Over (hops, layer): `accuracy`; `untrained`, that of the same probe on the model before training; `shuffled`, with
    labels shuffled among sequences, mean of three draws. One in N is chance.
    """
    batch = task.sample(N_SEQUENCES, split="test", generator=generator(seed, "readable"))
    layers = range(model.cfg.n_layers)
    sites = [Site(kind="resid_post", layer=layer) for layer in layers]
    found = []
    for hops in task.hops:
        of_hops = probe(
            model, batch, f"after_{hops}", sites=sites, pooled=True, controls={"untrained": untrained},
            n_shuffles=N_SHUFFLES, seed=seed,
        )  # fmt: skip
        found.append(
            xr.Dataset(
                {
                    "accuracy": of_hops.accuracy,
                    "untrained": of_hops.control_score.sel(control="untrained", drop=True),
                    "shuffled": of_hops.shuffled.mean("draw"),
                }
            )
        )
    result = xr.concat(found, xr.DataArray(list(task.hops), dims="hops", name="hops"), combine_attrs="drop")
    return result.rename(site="layer").assign_coords(layer=list(layers)).assign_attrs(unit="share of the places")
