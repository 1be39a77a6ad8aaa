"""How much an answer needs attention to one place: knocked out, one head at a time (nats of log-probability)."""

import torch
import xarray as xr

from mnemoscope import Batch, HookedModel, Knockout, Site, run_with
from mnemoscope.core.metrics import cross_entropy


def knocked_out(model: HookedModel, batch: Batch, place: str) -> xr.DataArray:
    """Rise in loss at the last position over (layer, head, prompt); `place` is a latent that holds a position."""

    def loss(*interventions: Knockout) -> torch.Tensor:
        return cross_entropy(run_with(model, batch, interventions)[:, -1], batch.targets[:, -1])

    sizes = {"layer": model.cfg.n_layers, "head": model.cfg.n_heads}
    clean = loss()
    rise = [
        [
            loss(Knockout(site=Site(kind="scores", layer=n, head=h, pos=-1, key=place))) - clean
            for h in range(sizes["head"])
        ]
        for n in range(sizes["layer"])
    ]
    values = torch.stack([torch.stack(row) for row in rise])
    return xr.DataArray(values.numpy(), dims=("layer", "head", "prompt"), attrs={"unit": "nats", "place": place})
