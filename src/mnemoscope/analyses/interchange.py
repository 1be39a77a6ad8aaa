"""Interchange interventions: does a network answer as a causal model says when activations come from another sequence?

A pair is a base and a source; one variable of the base takes its value in the source. The activation at some sites on
the base is replaced by that on the source, whole or inside a subspace. The answer is compared with that of the causal
model. Per pair:

    iia   1 where the network's most probable token is among the best answers of the causal model, else 0
    mass  the network's probability of those best answers
    kl    KL(answer of the causal model || network), in nats

The mean of the first is the interchange intervention accuracy of Geiger et al. (2021), "Causal abstractions of neural
networks". Each comes over all pairs and over two kinds of them, and `before_…` with nothing exchanged:

    changing  no answer that was best before is best afterwards: who is left alone cannot score here
    kept      the probabilities of all answers stay: who changes anything fails here
    (others)  some best answers stay best; they count among `all` pairs only

An accuracy over all pairs is flattering where most are kept, and one over the changing pairs alone is flattering to a
model that leaves out what the variable does not change: read both.

`arbitrary` gives the changing pairs other answers: of each pair of (answer before, answer after) a random function that
is neither, the same on every set of pairs. Where a learned subspace reaches these as well, its success shows how much
can be expressed by the learning, not what the network computes (the point of Sutter et al. 2025, "The non-linear
representation dilemma", made there with non-linear maps on untrained networks).

A high accuracy over both kinds of pairs shows that these sites carry the variable and that the network uses it as the
causal model says, on this distribution. It does not show that they carry nothing else, that no other causal model
says the same on these pairs, or that a variable is nowhere else besides. Compare with other sites, with random
subspaces and with an untrained network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope.analyses.ablation import heads_and_mlps
from mnemoscope.analyses.forward import check_fits, to_log_probs
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, Named, check_is_batch
from mnemoscope.core.causal import CausalModel, most_probable
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.intervention import Patch
from mnemoscope.core.metrics import kl_divergence
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.engine.budget import LOG_PROBS, n_rows_at_once, output_width
from mnemoscope.interventions.measurement import weight_processing
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import run_at

PAIR_SETS = ("all", "changing", "kept")


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterfactuals:
    """Probabilities of the answer on the bases (`before`), and with a variable as in the sources (`after`)."""

    causal: CausalModel
    variable: str
    pairs: PromptPairs
    before: Float[Tensor, "pair d_vocab"]
    after: Float[Tensor, "pair d_vocab"]

    @property
    def pair_sets(self) -> dict[str, Bool[Tensor, " pair"]]:
        """The pairs that count as `all`, `changing` and `kept`."""
        kept = (self.before - self.after).abs().amax(1) < 1e-9
        changing = ~(most_probable(self.before) & most_probable(self.after)).any(1)
        return {"all": torch.ones_like(kept), "changing": changing, "kept": kept}


def random_pairs(batch: Batch, n: int, *, seed: int = 0) -> PromptPairs:
    """Bases and sources drawn from one batch, each row alike, never a row with itself.

    Weights of the batch are not used: choose the rows that are to count. Draws come from the seed's stream `random
    pairs`. Raises InputError where the batch has fewer than two rows, or n is below 1.

    >>> len(ms.analyses.random_pairs(batch, 10))
    10
    """
    check_is_batch(batch)
    in_range("n", n, 1, float("inf"))
    in_range("the number of sequences that pairs are drawn from", len(batch), 2, float("inf"))
    draws = generator(seed, "random pairs")
    base = torch.randint(len(batch), (n,), generator=draws)
    source = (base + torch.randint(1, len(batch), (n,), generator=draws)) % len(batch)
    device = batch.inputs.device
    return PromptPairs(
        clean=batch.select(base.to(device)), corrupted=batch.select(source.to(device)), name="random pairs"
    )


def counterfactuals(causal: CausalModel, pairs: PromptPairs, variable: str, d_vocab: int) -> Counterfactuals:
    """The predictions of a causal model for pairs (bases `clean`, sources `corrupted`) with one variable exchanged."""
    return Counterfactuals(
        causal=causal,
        variable=variable,
        pairs=pairs,
        before=causal.answers(pairs.clean, d_vocab),
        after=causal.interchanged(pairs.clean, pairs.corrupted, variable, d_vocab),
    )


def arbitrary_answers(sets: Sequence[Counterfactuals], *, seed: int = 0) -> list[Counterfactuals]:
    """The same pairs, the changing ones with an arbitrary answer.

    The sets are of one variable and share one function, drawn from the seed's stream `arbitrary answers`. Raises
    InputError where fewer than three answers exclude each other, so that none is left to say.
    """
    changing = [wanted.pair_sets["changing"] for wanted in sets]
    before, after = (
        torch.cat([getattr(wanted, side)[rows] for wanted, rows in zip(sets, changing, strict=True)])
        for side in ("before", "after")
    )
    kinds, kind = torch.cat((before, after)).unique(dim=0, return_inverse=True)
    changes, which = kind.view(2, -1).unique(dim=1, return_inverse=True)
    apart = (most_probable(kinds).double() @ most_probable(kinds).double().T == 0).double()
    allowed = apart[changes[0]] * apart[changes[1]]
    if not len(before) or not allowed.any(1).all():
        raise InputError(
            "an arbitrary answer must be neither that before nor that after the exchange, so that three answers are "
            f"needed; the {len(before)} changing pairs have {len(kinds)}; take more pairs, or leave this control out"
        )
    chosen = allowed.cpu().multinomial(1, generator=generator(seed, "arbitrary answers"))[:, 0].to(kinds.device)
    answers = kinds[chosen[which]].split([int(rows.sum()) for rows in changing])
    return [
        replace(wanted, after=wanted.after.masked_scatter(rows[:, None], answer))
        for wanted, rows, answer in zip(sets, changing, answers, strict=True)
    ]


Answers = Literal["causal model", "arbitrary"]
MEASURES = ("iia", "mass", "kl")


@dataclass(frozen=True, kw_only=True)
class SubspacePlace:
    """Part of a site, spanned by the rows of `basis`, directions of the site's width."""

    site: Site
    basis: Named[Tensor]


PlaceSets = Mapping[str, Sequence[Site | SubspacePlace]]
"""Name to what is exchanged together."""


@check_arguments
def interchange_accuracy(
    model: ModelLike,
    causal: CausalModel,
    pairs: PromptPairs,
    *,
    places: PlaceSets | None = None,
    variables: Sequence[str] | None = None,
    answers: Answers = "causal model",
    seed: int = 0,
) -> xr.Dataset:
    """The agreement of a network's answers with those of a causal model, for every variable and every place.

    A site at a latent that holds one position per sequence is read in the source where the latent lies there.

    Args:
        model: A run, a subject or any hooked model; hooks that are on it stay and act.
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

    >>> slot = ms.core.CausalModel(
    ...     name="recall",
    ...     variables={"slot": lambda known: known["source_slot"]},
    ...     answer=lambda known: known["y"].gather(1, known["slot"][:, None] - 1)[:, 0],
    ... )
    >>> swapped = ms.analyses.random_pairs(batch.select(batch.latents["is_repeat"]), 20)
    >>> ms.analyses.interchange_accuracy(model, slot, swapped).iia.dims
    ('variable', 'place', 'over')
    """
    model = resolve_model(model)
    places = heads_and_mlps(model) if places is None else places
    if not places or not all(places.values()):
        raise InputError("places must name at least one set of sites, and none may be empty; see heads_and_mlps(model)")
    for batch in (pairs.clean, pairs.corrupted):
        check_fits(model, batch)
    d_vocab, chosen = output_width(model), list(causal.variables if variables is None else variables)
    if not chosen:
        raise InputError(f"variables must name at least one of {', '.join(causal.variables)}")
    one_of("answers", answers, get_args(Answers))
    wanted = [counterfactuals(causal, pairs, variable, d_vocab) for variable in chosen]
    if answers == "arbitrary":
        wanted = [arbitrary_answers([one], seed=seed)[0] for one in wanted]
    parts, recordings = split_pairs(pairs, n_pairs_at_once(model, pairs)), Recordings(model)

    def summary(logits: Float[Tensor, "pair d_vocab"]) -> Float[Tensor, "variable measure over"]:
        return torch.stack([interchange_scores(logits, one) for one in wanted])

    clean = run_interchange(model, causal, parts, (), recordings)
    follows = most_probable(wanted[0].before).gather(1, clean.argmax(1, keepdim=True)).double().mean()
    cells = [summary(run_interchange(model, causal, parts, place, recordings)) for place in places.values()]
    counts = torch.stack([torch.stack([one.pair_sets[name].sum() for name in PAIR_SETS]) for one in wanted])
    return xr.Dataset(
        {
            **measure_variables(torch.stack(cells, 1), ("variable", "place"), ("over",)),
            **measure_variables(summary(clean), ("variable",), ("over",), "before_"),
            "n": (("variable", "over"), to_numpy(counts)),
        },
        coords={"variable": chosen, "place": list(places), "over": list(PAIR_SETS)},
        attrs={
            "causal": causal.name,
            "answers": answers,
            "pairs": pairs.name,
            "n_pairs": len(pairs),
            "agreement": causal.agreement(pairs.clean, d_vocab),
            "follows": float(follows),
            "kl_unit": "nats",
            "weights": weight_processing(model),
        },
    )


PairChunk = tuple[Batch, Named[Batch]]
"""Some bases and their sources."""


def split_pairs(pairs: PromptPairs, size: int) -> list[PairChunk]:
    """The pairs in pieces of at most `size`."""
    pieces = [pairs.select(rows) for rows in torch.arange(len(pairs), device=pairs.clean.inputs.device).split(size)]
    return [(piece.clean, Named(name="source", value=piece.corrupted)) for piece in pieces]


def exchange_patch(place: Site | SubspacePlace, source: Named[Batch]) -> Patch:
    """The exchange at one place, as a value."""
    site, basis = (place.site, place.basis) if isinstance(place, SubspacePlace) else (place, None)
    own = isinstance(site.pos, str) and site.pos in source.value.latents and source.value.latents[site.pos].ndim == 1
    return Patch(site=site, source=source, at=str(site.pos) if own else None, basis=basis)


def run_interchange(
    model: HookedModel,
    causal: CausalModel,
    parts: Sequence[PairChunk],
    place: Sequence[Site | SubspacePlace],
    recordings: Recordings,
) -> Float[Tensor, "pair d_vocab"]:
    """The network's logits at the answer, with a place as in the source."""
    logits = [
        run_at(
            model, base, [exchange_patch(at, source) for at in place], answer_mask(causal, base), recordings=recordings
        )
        for base, source in parts
    ]
    return torch.cat(logits)


def answer_mask(causal: CausalModel, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """True at the place of the answer, one in a sequence."""
    numbers = torch.arange(batch.inputs.shape[1], device=batch.inputs.device).expand(len(batch), -1)
    return numbers == causal.due(numbers, batch)[:, None]


def n_pairs_at_once(model: HookedModel, pairs: PromptPairs) -> int:
    """The number of pairs in a forward pass whose logits are kept where the answer is expected."""
    kept = LOG_PROBS * output_width(model)
    return n_rows_at_once(model, pairs.clean.inputs.shape[1], kept=kept)


def interchange_scores(logits: Float[Tensor, "pair d_vocab"], wanted: Counterfactuals) -> Float[Tensor, "measure over"]:
    """Means of `iia`, `mass` and `kl` over the pairs that count, on the CPU; NaN where there are none."""
    log_probs, right = to_log_probs(logits), most_probable(wanted.after)
    hit = right.gather(1, log_probs.argmax(1, keepdim=True))[:, 0].double()
    values = torch.stack([hit, (log_probs.exp() * right).sum(1), kl_divergence(wanted.after, log_probs)])
    return torch.stack([values[:, wanted.pair_sets[name]].mean(1) for name in PAIR_SETS], 1).cpu()


def measure_variables(
    values: Float[Tensor, "..."], before: tuple[str, ...], after: tuple[str, ...], prefix: str = ""
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Variables of a result; `before` and `after` name the axes beside that of the measures."""
    measures = to_numpy(values.movedim(len(before), 0))
    return {prefix + name: ((*before, *after), array) for name, array in zip(MEASURES, measures, strict=True)}
