"""After a trigger: the noise token that every sequence shows, or the output that this one showed?

At triggers of noisy recall that have occurred before, p_noise and p_output are the mean probabilities of the noise
token and of the trigger's output. The *context share* is s = p_output / (p_output + p_noise). It is read before and
after the output of the last attention layer or of the last MLP is replaced, and with weights of that MLP cut at a rank
(`truncation`). Chen, Bruna & Bietti 2024, "How Truncating Weights Improves Reasoning in Language Models".

*Shows* what supports the noise token, given the rest of the model as it is.

*Does not show* that the output gets likelier: s also rises where both fall and the noise token falls further. Read the
probabilities beside it. In a model that puts little on either, such as an untrained one, s says nothing. At some of
these triggers only the noise token was shown before, so that no model can know the output.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
import xarray as xr

from mnemoscope import Batch, HookedModel, InputError, Intervention, Mean, Named, Site, Task, Zero, run_with
from mnemoscope.analyses import (
    SPECTRUM_PARTS,
    TARGET_SCORES,
    SpectrumPart,
    TokenTargets,
    WeightSets,
    check_fits,
    check_targets,
    last_mlp,
    score_sums,
    target_counts,
    truncate,
)
from mnemoscope.core import CHUNK, one_of
from mnemoscope.interventions import Recordings
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall

NOISE, OUTPUT = "noise_token", "output"

Replacement = Literal["mean", "zero"]
REPLACEMENTS: tuple[Replacement, ...] = ("mean", "zero")


def noise_and_output(task: Task, batch: Batch) -> TokenTargets:
    """The noise token and the output at every trigger seen before; raises InputError for another task."""
    if not isinstance(task, NoisyRecall):
        raise InputError(f"the task must be {NoisyRecall.name}, which has a noise token; got {task.name}")
    where = batch.latents["occurrence"] > 1
    output = batch.known["outputs"].gather(1, batch.latents["trigger"].clamp(min=0))
    return {NOISE: (torch.full_like(output, task.noise_token), where), OUTPUT: (output, where)}


def context_share(probability: xr.DataArray) -> xr.DataArray:
    """The context share s from probabilities over `target`; NaN where neither token has any."""
    noise, output = (probability.sel(target=name, drop=True) for name in (NOISE, OUTPUT))
    total = noise + output
    return output / total.where(total > 0)


def removed(
    model: HookedModel, task: Task, batch: Batch, *, reference: Batch, kinds: Sequence[Replacement] = REPLACEMENTS
) -> xr.Dataset:
    """Both probabilities without the last attention layer, and without the last MLP.

    An output is replaced by its `mean` over sequences and positions of a reference with sequences as long, or by
    `zero`.

    `probability`, `log_prob` (nats) and `accuracy` are over (kind, component, target), `context_share` over (kind,
    component), and `clean_` marks each before; component is `attention` or `MLP`.
    """
    check_fits(model, batch)
    targets = noise_and_output(task, batch)
    check_targets(batch, targets)
    if model.cfg.attn_only:
        raise InputError("the model has no MLP to remove; take a model with one")
    last = model.cfg.n_layers - 1
    sites = {"attention": Site(kind="attn_out", layer=last), "MLP": Site(kind="mlp_out", layer=last)}
    source = Named(name="reference", value=reference)
    cells: dict[tuple[str, str], list[Intervention]] = {}
    for kind in kinds:
        one_of("kind", kind, REPLACEMENTS)
        for name, site in sites.items():
            cells[kind, name] = [Zero(site=site) if kind == "zero" else Mean(site=site, source=source, over="position")]
    recordings = Recordings(model)
    clean, *each = (_scores(model, batch, targets, changes, recordings) for changes in ([], *cells.values()))
    found = xr.concat(each, "cell").assign_coords(
        kind=("cell", [k for k, _ in cells]), component=("cell", [c for _, c in cells])
    )
    found = found.set_index(cell=["kind", "component"]).unstack("cell").sel(kind=list(kinds), component=list(sites))
    found = found.transpose("kind", "component", "target").assign(
        {f"clean_{name}": clean[name] for name in TARGET_SCORES}
    )
    attrs = {"log_prob_unit": "nats", "n": len(batch), "n_reference": len(reference), "weights": "unprocessed"}
    return _with_shares(found).assign_attrs(attrs)


def truncated(
    model: HookedModel,
    task: Task,
    batch: Batch,
    *,
    weights: WeightSets | None = None,
    ranks: Sequence[int] | None = None,
    parts: Sequence[SpectrumPart] = SPECTRUM_PARTS,
    besides: TokenTargets | None = None,
) -> xr.Dataset:
    """`truncation.truncate` of both probabilities, with `context_share` over (weight, part, rank) and its clean value.

    By default W_in and W_out of the last MLP are cut, each by itself and both together, at every rank. `parts` are the
    terms before the cut, or those after it; `besides` are other targets to score as well.
    """
    targets: Mapping = {**(besides or {}), **noise_and_output(task, batch)}
    weights = last_mlp(model) if weights is None else weights
    return _with_shares(truncate(model, batch, weights=weights, targets=targets, ranks=ranks, parts=parts))


def _scores(
    model: HookedModel, batch: Batch, targets: TokenTargets, changes: Sequence[Intervention], recordings: Recordings
) -> xr.Dataset:
    parts = torch.arange(len(batch)).split(CHUNK)
    sums = [
        score_sums(run_with(model, batch.select(rows), changes, recordings=recordings), targets, rows).cpu()
        for rows in parts
    ]
    means = (torch.stack(sums).sum(0) / target_counts(targets)[:, None]).numpy()
    values = {name: ("target", means[:, i]) for i, name in enumerate(TARGET_SCORES)}
    return xr.Dataset(values, coords={"target": list(targets)})


def _with_shares(found: xr.Dataset) -> xr.Dataset:
    shares = {f"{when}context_share": context_share(found[f"{when}probability"]) for when in ("", "clean_")}
    return found.assign(shares)
