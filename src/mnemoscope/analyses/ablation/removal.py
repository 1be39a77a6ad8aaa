"""Which skill is lost when part of a model is removed.

Sets of sites (a head, an MLP, a neuron, a position, an attention path, any group of them) are replaced, one set at a
time, by zeros, by their mean over a reference set, or by their activation in another sequence of that set. For each
skill: accuracy and mean log-probability of the answer (nats), clean and ablated.

It shows that a part is needed for a skill on this distribution, given the rest of the model as it is. It does not
show what the part computes, and a part that another one can stand in for looks unneeded.
"""

from collections.abc import Mapping, Sequence

import torch
import xarray as xr
from torch import Tensor

from mnemoscope.analyses.ablation.targets import heads_and_mlps
from mnemoscope.analyses.forward import answer_scores, check_fits
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.intervention import REMOVALS, REPLACEMENTS, Removal, removal
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills, means
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_with


def ablate(
    model: HookedModel,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    targets: Mapping[str, Sequence[Site]] | None = None,
    kinds: Sequence[Removal] = REPLACEMENTS,
    within: str | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Skills with one target removed at a time.

    Args:
        model: Any hooked model whose vocabulary and context are large enough.
        batch: Sequences that test the skills.
        skills: For each skill the positions whose answer it alone gives (`task.skills(batch)`).
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        targets: Name to the sites that are removed together; none: every head and every MLP for itself.
        kinds: Which ablations; `knockout` is for sites of kind scores.
        within: Name of a latent: means and resampled activations come from sequences of the same class, so that what
            the class itself is known by stays. None: from all.
        seed: Resampling draws from this seed's stream `resample`.

    Returns:
        `accuracy`, `log_prob` and `accuracy_error` (the standard error, over sequences, of the drop in accuracy) over
        (kind, component, skill), `clean_accuracy` and `clean_log_prob` over skill; NaN for a skill that no sequence
        of the batch tests.

    Raises:
        InputError: The model is too small for the batch, a site does not exist, or the reference has another length.
    """
    check_fits(model, batch)
    for kind in kinds:
        one_of("the kind of an ablation", kind, REMOVALS)
    if targets is None:
        targets = heads_and_mlps(model)
    if not targets:
        raise InputError("targets must name at least one set of sites; got none")
    source, recordings = Named(name="reference", value=reference), Recordings(model)
    clean = answer_scores(torch.cat([run_with(model, part, []) for part in _parts(batch, CHUNK)]), batch.targets)
    cells = []
    for kind in kinds:
        for sites in targets.values():
            interventions = [removal(kind, site, source, within) for site in sites]
            size = len(batch) if kind == "resample" else CHUNK  # what is resampled is drawn for all at once
            logits = [
                run_with(model, part, interventions, seed=seed, recordings=recordings) for part in _parts(batch, size)
            ]
            cells.append(_by_skill(answer_scores(torch.cat(logits), batch.targets), clean, skills))
    shape = (len(kinds), len(targets), len(skills))
    dims = ("kind", "component", "skill")
    whole = _by_skill(clean, clean, skills)
    return xr.Dataset(
        {
            **{name: (dims, torch.stack([cell[name] for cell in cells]).view(shape).numpy()) for name in whole},
            **{f"clean_{name}": ("skill", whole[name].numpy()) for name in ("accuracy", "log_prob")},
        },
        coords={"kind": list(kinds), "component": list(targets), "skill": list(skills)},
        attrs={
            "log_prob_unit": "nats",
            "n": len(batch),
            "n_reference": len(reference),
            "reference": str(source),
            "within": within or "all sequences",
            "weights": "unprocessed",
        },
    )


def _parts(batch: Batch, size: int) -> list[Batch]:
    """The batch in pieces of at most `size` sequences."""
    return [batch.select(rows) for rows in torch.arange(len(batch)).split(size)]


def _by_skill(scores: Mapping[str, Tensor], clean: Mapping[str, Tensor], skills: Skills) -> dict[str, Tensor]:
    result = {name: means(values, skills) for name, values in scores.items()}
    drop = clean["accuracy"] - scores["accuracy"]
    drops = [drop[mask.to(drop.device)] for mask in skills.values()]
    errors = [(drop - drop.mean()).square().mean().sqrt() / max(len(drop) - 1, 1) ** 0.5 for drop in drops]
    return {**result, "accuracy_error": torch.stack(errors)}
