"""Interchange interventions: what the network answers when activations come from another sequence.

The activation at some sites on the base is replaced by that on the source, whole or inside a subspace, and the answer
is compared with what the causal model says when a variable is exchanged in the same way. Per pair:

    iia   1 where the network's most probable token is among the best answers of the causal model, else 0
    mass  the network's probability of those best answers
    kl    KL(answer of the causal model || network), in nats

The mean of the first is the interchange intervention accuracy of Geiger et al. (2021), "Causal abstractions of neural
networks". Each comes over all pairs, over those where the causal model says that the answer changes, and over those
where it says that nothing does (see `counterfactuals`), and `before_…` with nothing exchanged.

A high accuracy over both kinds of pairs shows that these sites carry the variable and that the network uses it as the
causal model says, on this distribution. It does not show that they carry nothing else, that no other causal model
says the same on these pairs, or that a variable is nowhere else besides. Compare with other sites, with random
subspaces and with an untrained network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.ablation import heads_and_mlps
from mnemoscope.analyses.forward import check_fits, normalised
from mnemoscope.analyses.interchange.counterfactuals import OVER, Counterfactuals, arbitrary, counterfactuals
from mnemoscope.core.batch import Batch
from mnemoscope.core.causal import CausalModel, best
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.intervention import Patch
from mnemoscope.core.metrics import kl_divergence
from mnemoscope.core.named import Named
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.engine.budget import LOG_PROBS, output_width, rows_at_once
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_at

Answers = Literal["causal model", "arbitrary"]
MEASURES = ("iia", "mass", "kl")


@dataclass(frozen=True, kw_only=True)
class Subspace:
    """Part of a site, spanned by the rows of `basis`, directions of the site's width."""

    site: Site
    basis: Named[Tensor]


Places = Mapping[str, Sequence[Site | Subspace]]
"""Name to what is exchanged together."""


def interchange_accuracy(
    model: HookedModel,
    causal: CausalModel,
    pairs: PromptPairs,
    *,
    places: Places | None = None,
    variables: Sequence[str] | None = None,
    answers: Answers = "causal model",
    seed: int = 0,
) -> xr.Dataset:
    """The agreement of a network's answers with those of a causal model, for every variable and every place.

    A site at a latent that holds one position per sequence is read in the source where the latent lies there.

    Args:
        model: Any hooked model; hooks that are on it stay and act.
        causal: The causal model.
        pairs: `clean` are the bases, `corrupted` the sources (`random_pairs`).
        places: Name to the sites or subspaces that are exchanged together; none: each head and each MLP.
        variables: Which ones; none: all.
        answers: What counts as right: those of the causal model, or, as a control, arbitrary ones on changing pairs.
        seed: Arbitrary answers come from this seed's stream.

    Returns:
        `iia`, `mass` and `kl` over (variable, place, over); `before_iia`, `before_mass`, `before_kl` and `n`, the
        number of pairs, over (variable, over); NaN where there are no such pairs. In attrs `agreement` (how often the
        targets are the answers of the causal model) and `follows` (how often the network's answer on the bases is).

    Raises:
        InputError: The model is too small for the sequences, a site does not exist, there is no such variable, the
            causal model does not fit the sequences, there are too few answers for arbitrary ones, or logits hold NaN.
    """
    places = heads_and_mlps(model) if places is None else places
    if not places or not all(places.values()):
        raise InputError("places must name at least one set of sites, and none may be empty; see heads_and_mlps(model)")
    for batch in (pairs.clean, pairs.corrupted):
        check_fits(model, batch)
    d_vocab, chosen = model.cfg.d_vocab, list(causal.variables if variables is None else variables)
    if not chosen:
        raise InputError(f"variables must name at least one of {', '.join(causal.variables)}")
    one_of("answers", answers, get_args(Answers))
    wanted = [counterfactuals(causal, pairs, variable, d_vocab) for variable in chosen]
    if answers == "arbitrary":
        wanted = [arbitrary([one], seed=seed)[0] for one in wanted]
    parts, recordings = in_parts(pairs, pairs_at_once(model, pairs)), Recordings(model)

    def summary(logits: Float[Tensor, "pair d_vocab"]) -> Float[Tensor, "variable measure over"]:
        return torch.stack([scores(logits, one) for one in wanted])

    clean = exchanged(model, causal, parts, (), recordings)
    follows = best(wanted[0].before).gather(1, clean.argmax(1, keepdim=True)).double().mean()
    cells = [summary(exchanged(model, causal, parts, place, recordings)) for place in places.values()]
    counts = torch.stack([torch.stack([one.over[name].sum() for name in OVER]) for one in wanted])
    return xr.Dataset(
        {
            **by_measure(torch.stack(cells, 1), ("variable", "place"), ("over",)),
            **by_measure(summary(clean), ("variable",), ("over",), "before_"),
            "n": (("variable", "over"), counts.cpu().numpy()),
        },
        coords={"variable": chosen, "place": list(places), "over": list(OVER)},
        attrs={
            "causal": causal.name,
            "answers": answers,
            "pairs": pairs.name,
            "n_pairs": len(pairs),
            "agreement": causal.agreement(pairs.clean, d_vocab),
            "follows": float(follows),
            "kl_unit": "nats",
            "weights": "LayerNorm folded" if str(model.cfg.normalization_type).endswith("Pre") else "unprocessed",
        },
    )


Chunk = tuple[Batch, Named[Batch]]
"""Some bases and their sources."""


def in_parts(pairs: PromptPairs, size: int) -> list[Chunk]:
    """The pairs in pieces of at most `size`."""
    pieces = [pairs.select(rows) for rows in torch.arange(len(pairs), device=pairs.clean.inputs.device).split(size)]
    return [(piece.clean, Named(name="source", value=piece.corrupted)) for piece in pieces]


def patch(place: Site | Subspace, source: Named[Batch]) -> Patch:
    """The exchange at one place, as a value."""
    site, basis = (place.site, place.basis) if isinstance(place, Subspace) else (place, None)
    own = isinstance(site.pos, str) and site.pos in source.value.latents and source.value.latents[site.pos].ndim == 1
    return Patch(site=site, source=source, at=str(site.pos) if own else None, basis=basis)


def exchanged(
    model: HookedModel,
    causal: CausalModel,
    parts: Sequence[Chunk],
    place: Sequence[Site | Subspace],
    recordings: Recordings,
) -> Float[Tensor, "pair d_vocab"]:
    """The network's logits at the answer, with a place as in the source."""
    logits = [
        run_at(model, base, [patch(at, source) for at in place], due(causal, base), recordings=recordings)
        for base, source in parts
    ]
    return torch.cat(logits)


def due(causal: CausalModel, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """True at the place of the answer, one in a sequence."""
    numbers = torch.arange(batch.inputs.shape[1], device=batch.inputs.device).expand(len(batch), -1)
    return numbers == causal.due(numbers, batch)[:, None]


def pairs_at_once(model: HookedModel, pairs: PromptPairs) -> int:
    """The number of pairs in a forward pass whose logits are kept where the answer is expected."""
    kept = LOG_PROBS * output_width(model)
    return rows_at_once(model, pairs.clean.inputs.shape[1], kept=kept)


def scores(logits: Float[Tensor, "pair d_vocab"], wanted: Counterfactuals) -> Float[Tensor, "measure over"]:
    """Means of `iia`, `mass` and `kl` over the pairs that count, on the CPU; NaN where there are none.

    Of equally probable tokens the lowest is the network's answer.
    """
    log_probs, right = normalised(logits), best(wanted.after)
    hit = right.gather(1, log_probs.argmax(1, keepdim=True))[:, 0].double()
    values = torch.stack([hit, (log_probs.exp() * right).sum(1), kl_divergence(wanted.after, log_probs)])
    return torch.stack([values[:, wanted.over[name]].mean(1) for name in OVER], 1).cpu()


def by_measure(
    values: Float[Tensor, "..."], before: tuple[str, ...], after: tuple[str, ...], prefix: str = ""
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Variables of a result; `before` and `after` name the axes beside that of the measures."""
    measures = values.movedim(len(before), 0).numpy()
    return {prefix + name: ((*before, *after), array) for name, array in zip(MEASURES, measures, strict=True)}
