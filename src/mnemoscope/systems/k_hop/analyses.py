"""Measurements on models that compose functions: which layer holds which intermediate result.

Interchange: which layer holds the intermediate result that a longer composition is put together from.

2r hops from function i are r hops from there and r hops from function i + r. Where a model composes by doubling, the
places of function i + r hold the second half after some layer, and others fetch it. So after each layer the residual
stream at the places of one function is set to what it is in another sequence. With f^src the other sequence, the causal
model says

    answer after 2r hops at (i, x)  =  f_r^src(i + r, f_r(i, x))

and the share of the places of function i at which that is what the model answers is its interchange accuracy (Geiger et
al. 2021, "Causal abstractions of neural networks"). Only sequences and places count at which the answer differs from
the one without the exchange. Chance is one in N.

*Shows* that what stands there after that layer decides the second half of the answer. *Does not show* how it came
there.

The layer after which the result of every number of hops can be read linearly from the residual stream.

*Shows* what could be read there. *Does not show* that the model does: `exchanged_halves` changes what stands there.
"""

import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, Named, Patch, Site, generator, probe, run_with
from mnemoscope.systems.k_hop.tasks import KHop


@torch.no_grad()
def exchanged_halves(model: HookedModel, task: KHop, base: Batch, source: Batch) -> xr.Dataset:
    """Interchange accuracy of the second half of every composition, after every layer.

    Second halves are taken from `source`. Raises InputError where no number of hops of the task is twice another, or
    the batches differ in size.

    Returns:
        Over (hops, layer): `accuracy`, how often the answer is the one with the other sequence's second half, and
        `unchanged`, how often it is the one without. Hops are those that are twice another number of hops.
    """
    if len(base) != len(source):
        raise InputError(f"base and source must have as many sequences; got {len(base)} and {len(source)}")
    halves = {2 * half: half for half in task.hops if 2 * half in task.hops}
    if not halves:
        raise InputError(f"task.hops must name a number and its double; got {task.hops}")
    layers, cells = range(model.cfg.n_layers), []
    for hops, half in halves.items():
        own, wanted = _expected(task, base, source, half)
        for layer in layers:
            given = _given(model, task, base, source, hops=hops, layer=layer)
            differ = own != wanted
            cells.append([float((given == answer)[differ].double().mean()) for answer in (wanted, own)])
    found = torch.tensor(cells, dtype=torch.double).view(len(halves), len(layers), 2).numpy()
    return xr.Dataset(
        {"accuracy": (("hops", "layer"), found[..., 0]), "unchanged": (("hops", "layer"), found[..., 1])},
        coords={"hops": list(halves), "layer": list(layers)},
        attrs={"unit": "share of the places whose answer the exchange should change", "n": len(base)},
    )


def held_in_order(halves: xr.Dataset) -> float:
    """The least interchange accuracy where doubling has it: r hops after layer log2 r, from 0."""
    exact = [halves.accuracy.sel(hops=hops, layer=layer) for layer, hops in enumerate(halves.hops.values.tolist())]
    return float(min(exact))


def _expected(
    task: KHop, base: Batch, source: Batch, half: int
) -> tuple[Int[Tensor, "batch function symbol"], Int[Tensor, "batch function symbol"]]:
    """Answers of every place after twice `half` hops: its own, and with the second half of the other sequence."""
    size = (task.n_functions, task.n_symbols)
    after, other = (batch.latents[f"after_{half}"].unflatten(1, size) for batch in (base, source))
    ahead = [each.roll(-half, 1) for each in (after, other)]  # row i: from function i + half
    own, wanted = (each.gather(2, after) for each in ahead)
    return own, wanted


def _given(
    model: HookedModel, task: KHop, base: Batch, source: Batch, *, hops: int, layer: int
) -> Int[Tensor, "batch function symbol"]:
    """The answers of every place, with the places half the hops ahead as in the other sequence."""
    n, part, found = task.n_symbols, task.parts[f"hops_{hops}"], []
    for function in range(task.n_functions):
        ahead = (function + hops // 2) % task.n_functions
        positions = tuple(range(n * ahead, n * (ahead + 1)))
        patch = Patch(
            site=Site(kind="resid_post", layer=layer, pos=positions), source=Named(name="source", value=source)
        )
        outputs = run_with(model, base, [patch])[..., part]
        found.append(outputs[:, n * function : n * (function + 1)].argmax(-1))
    return torch.stack(found, 1)


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
