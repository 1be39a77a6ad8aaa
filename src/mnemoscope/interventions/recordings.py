"""Activations of the batches that interventions take their values from, recorded when first needed."""

from collections.abc import Collection, Iterable

import torch
from torch import Tensor

from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site


def read(site: Site) -> str:
    """The hook point that has the numbers of a site; those of `result` are computed from z."""
    return site.hook.replace("hook_attn_out", "attn.hook_z") if site.kind == "result" else site.hook


def results(model: HookedModel, layer: int, z: Tensor) -> Tensor:
    """What each head adds to the residual stream, `batch pos head_index d_model`, from `z`."""
    return torch.einsum("bphd,hdm->bphm", z, model.blocks[layer].attn.W_O)


@torch.no_grad()
def recorded(model: HookedModel, batch: Batch, names: Collection[str]) -> dict[str, Tensor]:
    """The activations at hook points on a batch, in forward passes of bounded size; hooks on the model take part."""
    parts = []
    for inputs in batch.inputs.split(CHUNK):
        _, cache = model.run_with_cache(inputs, names_filter=lambda name: name in names)
        # one row may stand for all
        parts.append({name: cache[name].expand(len(inputs), *cache[name].shape[1:]) for name in names})
    return {name: torch.cat([part[name] for part in parts]) for name in names}


class Recordings:
    """What a model's activations are on some batches, without any intervention.

    Kept between runs, they spare a forward pass each; hooks that the user left on the model take part.
    """

    def __init__(self, model: HookedModel):
        self._model = model
        self._kept: dict[tuple[Named[Batch], str], Tensor] = {}

    @torch.no_grad()
    def prepare(self, needs: Iterable[tuple[Named[Batch], Site]]) -> None:
        """Record the sites on the batches, with one forward pass a batch."""
        missing: dict[Named[Batch], set[str]] = {}
        for source, site in needs:
            if (source, read(site)) not in self._kept:
                missing.setdefault(source, set()).add(read(site))
        for source, names in missing.items():
            found = recorded(self._model, source.value, names)
            self._kept.update({(source, name): activation for name, activation in found.items()})

    def of(self, source: Named[Batch], site: Site) -> Tensor:
        """The activation at a site on a batch, all heads and positions of it."""
        self.prepare([(source, site)])
        activation = self._kept[source, read(site)]
        if site.kind == "result" and site.layer is not None:
            return results(self._model, site.layer, activation)
        return activation
