"""Progress of the subcircuits A (copy), B (routing) and C (match) of a model, along checkpoints.

- `copy`: all heads of the last layer attend from the query to the right label, and only that. With the loss that is
  left, progress = 1 - loss / log 2, at least 0: at log 2 a model tells the two labels of the sequence apart no better
  than chance.
- `routing`: the attention of the best head of the first layer from labels to the exemplars before them, from 0 for even
  attention to 1 for all of it.
- `match`: that head attends to the token before, and only there. The prediction is the attention that a head of the
  last layer then gives to the two labels. The best head counts; progress as for `copy`.

Copy and match are read with what they depend on at its ideal, so that each says how far it has come by itself. Routing
is attention alone, on another scale.
"""

import math

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, SetPattern, Site, run_with
from mnemoscope.core import Mechanism, patterns
from mnemoscope.interventions import intervene
from mnemoscope.systems.induction_formation.analyses.heads import scores, strengths
from mnemoscope.systems.induction_formation.ideal_parts import LABELS, QUERY, right_label

SUBCIRCUITS = ("copy", "routing", "match")
_EVEN = sum(1 / (label + 1) for label in LABELS) / len(LABELS)
"""Even attention from labels to the exemplars before them."""


def _match(batch: Batch) -> Float[Tensor, "batch query key"]:
    """All attention from the query on the right label; other rows are left."""
    n_pos = batch.inputs.shape[1]
    pattern = torch.full((len(batch), n_pos, n_pos), math.nan, device=batch.inputs.device)
    pattern[:, QUERY] = right_label(batch.inputs).float()
    return pattern


RIGHT_LABEL = Mechanism(name="right label", pattern=_match)
"""All attention from the query on the right label."""


@torch.no_grad()
def progress(model: HookedModel, batch: Batch) -> xr.DataArray:
    """The progress of each of `SUBCIRCUITS`, over `subcircuit`."""
    last, back = model.cfg.n_layers - 1, strengths(model, batch).previous
    ideal = SetPattern(site=Site(kind="pattern", layer=last), mechanism=RIGHT_LABEL)
    copied = scores(run_with(model, batch, [ideal])[:, QUERY], batch)["loss"]
    previous = Site(kind="pattern", layer=0, head=int(back.values.argmax()))
    with intervene(model, batch, [SetPattern(site=previous, mechanism=patterns.previous())]):
        name = f"blocks.{last}.attn.hook_pattern"
        _, cache = model.run_with_cache(batch.inputs, names_filter=lambda each: each == name)
    matched = _attention_loss(cache[name][:, :, QUERY], batch)
    found = [_share(copied), max(0.0, (float(back.max()) - _EVEN) / (1 - _EVEN)), _share(matched)]
    return xr.DataArray(found, coords={"subcircuit": list(SUBCIRCUITS)}, dims="subcircuit", attrs={"n": len(batch)})


def _share(loss: float) -> float:
    return max(0.0, 1 - loss / math.log(2))


def _attention_loss(pattern: Float[Tensor, "batch head key"], batch: Batch) -> float:
    """The loss of the best head, whose attention to the two labels is the prediction."""
    both = pattern[..., list(LABELS)].double().clamp(min=1e-12).log()
    which = batch.latents["which"][:, None, None].expand(-1, both.shape[1], 1)
    return float((both.logsumexp(-1) - both.gather(2, which)[..., 0]).mean(0).min())
